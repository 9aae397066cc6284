package driver_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

func TestParseURL(t *testing.T) {
	u, err := driver.ParseURL("RedLock://us%40er:p%2Fss@h1:1,[::1]:2,h3/a%20b?prefix=x&ttl=2s&n=3&on=true")
	if err != nil {
		t.Fatal(err)
	}
	if u.Scheme != "redlock" || u.User != "us@er" || u.Password != "p/ss" || u.Path != "/a b" {
		t.Errorf("parsed as %q %q %q %q", u.Scheme, u.User, u.Password, u.Path)
	}
	if hosts := u.HostsWithPort("9"); !slices.Equal(hosts, []string{"h1:1", "[::1]:2", "h3:9"}) {
		t.Errorf("hosts %q", hosts)
	}
	for _, s := range []string{u.Redacted(), u.String(), fmt.Sprintf("%v %+v %#v", u, u, u)} {
		if strings.Contains(s, "ss") {
			t.Errorf("%s tells the password", s)
		}
	}
	if u.Param("prefix", "") != "x" || u.Duration("ttl", 0) != 2*time.Second || u.Int("n", 0, 1) != 3 || !u.Bool("on", false) {
		t.Error("parameters")
	}
	if u.Duration("d", time.Hour) != time.Hour || u.Int("i", 7, 1) != 7 || u.Bool("b", true) != true {
		t.Error("defaults")
	}
	if err := u.Done(); err != nil {
		t.Error(err)
	}
}

func TestURLSaysWhatIsWrong(t *testing.T) {
	for raw, part := range map[string]string{
		"x://h:0":           `bad port "0"`,
		"x://h:70000":       `bad port "70000"`,
		"x://h 1":           "bad host",
		"x://h1,,h2":        `bad host ""`,
		"x://[::1":          "bad host",
		"x://::1":           "bad host",
		"x://h?n=0":         "whole number of at least 1",
		"x://h?on=perhaps":  "want true or false",
		"x://h?d=":          "want a duration",
		"x://h?zeta=1&eta=": `unknown parameter "eta" (known: d, n, on)`,
	} {
		u, err := driver.ParseURL(raw)
		if err == nil {
			u.Int("n", 1, 1)
			u.Bool("on", false)
			u.Duration("d", 0)
			err = u.Done()
		}
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %v does not say %q", raw, err, part)
		}
	}
}

// A password that is not escaped is cut at its / or ?, and what stands before
// that may look like a port.
func TestURLTellsNoPassword(t *testing.T) {
	for _, raw := range []string{
		"x://app:12/s3cret@h:3306/db",
		"x://app:12?s3cret@h/db",
		"x://app:12?a=s3cret@h/db",
		"x://app:pass@12/s3cret@h/db",
		"x://app:1@2/s3cret@h",
		"x://app:no/s3cret@h",
		"x://app:12#s3cret@h",
		"x://app:s3cret%zz@h",
	} {
		u, err := driver.ParseURL(raw)
		if err == nil {
			t.Errorf("%s is taken as %v", raw, u)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: the error tells it: %v", raw, err)
		}
	}
	if u, err := driver.ParseURL("x://app:12%2Fs3cret%40@h/db?a=b%40c"); err != nil || u.Password != "12/s3cret@" || u.Param("a", "") != "b@c" {
		t.Errorf("escaped: %v", err)
	}
}
