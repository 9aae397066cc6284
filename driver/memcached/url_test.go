package memcached_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lockerproject/locker/driver"
)

func TestURL(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"memcached://a":          "memcached a:11211",
		"memcached://a:1,b,c:2/": "memcached a:1,b:11211,c:2",
		"memcached://me:geheim@a?prefix=p&ttl=5s&timeout=1s&dial_timeout=1s&evictions=accept&tls=true": "memcached a:11211",
	} {
		d, err := open(t.Context(), url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if got := fmt.Sprint(d); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
		_ = d.Close()
	}
}

func TestURLWrong(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"memcached://":                              "want memcached://",
		"memcached://a/path":                        "want memcached://",
		"memcached://a,a":                           "twice",
		"memcached://a?evictions=perhaps":           "evictions",
		"memcached://a?timeout=0":                   "timeout",
		"memcached://a?prefix=a%20b":                "prefix",
		"memcached://a?ca=/none":                    "ca",
		"memcached://me:geheim@a?no_such=1":         "no_such",
		"memcached://me:geheim@a/b?password_file=x": "password_file",
	} {
		d, err := open(t.Context(), url)
		if err == nil {
			t.Errorf("%s is accepted", url)
			_ = d.Close()
			continue
		}
		if !errors.Is(err, driver.ErrInvalidOption) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}
