package nats_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockerproject/locker/driver"
)

func TestURL(t *testing.T) {
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("geheim\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"nats://a":                    "nats a:4222, bucket locker",
		"nats://a:1,b,c:2/?bucket=bb": "nats a:1,b:4222,c:2, bucket bb",
		"nats://me:geheim@a?prefix=p&ttl=5s&timeout=1s&dial_timeout=1s&replicas=3&tls=true": "nats a:4222, bucket locker",
		"nats://geheim@a":                   "nats a:4222, bucket locker",
		"nats://me@a?password_file=" + file: "nats a:4222, bucket locker",
		"nats://a?token_file=" + file:       "nats a:4222, bucket locker",
		"nats://a?credentials_file=" + file: "nats a:4222, bucket locker",
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
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte("geheim\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for url, want := range map[string]string{
		"nats://":                              "want nats://",
		"nats://a/path":                        "want nats://",
		"nats://a?bucket=a.b":                  "bucket",
		"nats://a?prefix=a.b":                  "prefix",
		"nats://a?prefix=a%20b":                "prefix",
		"nats://a?replicas=9":                  "replicas",
		"nats://a?timeout=0":                   "timeout",
		"nats://a?ca=/none":                    "ca",
		"nats://a?credentials_file=/none":      "credentials_file",
		"nats://me:geheim@a?no_such=1":         "no_such",
		"nats://me:geheim@a/b?password_file=x": "password_file",
		"nats://geheim@a?token_file=" + file:   "token_file",
		"nats://a?token_file=" + file + "&credentials_file=" + file: "want one of them",
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
