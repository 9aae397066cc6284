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
		"":                  "empty URL: want scheme://host…, as in redis://",
		"localhost:6379":    "malformed URL: want scheme://host…, as in redis://",
		"x://h:0":           "host 1: bad port: want 1 to 65535",
		"x://h,h:70000":     "host 2: bad port: want 1 to 65535",
		"x://h 1":           "host 1: bad name",
		"x://h1,,h2":        "host 2: bad name",
		"x://[::1":          "host 1: bad name",
		"x://::1":           "host 1: bad name",
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

// A password that is not escaped is cut at its / or ?, and the part before that
// may look like a port. If the @ after it is escaped, or the host is missing, it may look like
// a host or a port.
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
		"x://app:s3cret%40h:6379",
		"x://app:s3cret%40h",
		"x://app:s3cret",
		"x://app%3As3cret%40h",
		"x://h1,app:s3cret%40h2:1",
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

func TestURLParts(t *testing.T) {
	u, err := driver.ParseURL("all://(redis://u:p(a)ss@h1/0?prefix=a)(fallback://(x://h2)(y://h3,h4?n=1)?m=2)?prefix=b&ttl=3s")
	if err != nil {
		t.Fatal(err)
	}
	if want := "all://(redis://h1/0)(fallback://(x://h2)(y://h3,h4))"; u.String() != want || fmt.Sprintf("%#v", u) != want {
		t.Errorf("redacted as %s", u)
	}
	if u.Duration("ttl", 0) != 3*time.Second || u.Param("prefix", "") != "b" {
		t.Error("parameters of the whole")
	}
	if err := u.Done(); err == nil || !strings.Contains(err.Error(), "all:// takes no URLs in parentheses") {
		t.Errorf("parts that nobody asked for: %v", err)
	}
	parts := u.Parts()
	if err := u.Done(); err != nil || len(parts) != 2 {
		t.Fatalf("%d parts, %v", len(parts), err)
	}
	for i, want := range []string{"a", "b"} {
		parts[i].SetDefault("prefix", "b")
		if got := parts[i].Param("prefix", ""); got != want {
			t.Errorf("part %d has prefix %q, want %q", i, got, want)
		}
	}
	if parts[0].Password != "p(a)ss" || parts[1].Int("m", 0, 0) != 2 {
		t.Errorf("parts %v", parts)
	}
	if inner := parts[1].Parts(); len(inner) != 2 || inner[1].Int("n", 0, 0) != 1 || len(inner[1].Hosts) != 2 {
		t.Errorf("inner parts %v", inner)
	}
}

func TestURLPartsSayWhatIsWrong(t *testing.T) {
	for raw, part := range map[string]string{
		"all://(x://h":               "without its )",
		"all://()":                   "want URLs",
		"all://(h1)(x://h2)":         "want URLs",
		"all://(x://h)h2":            "after the last )",
		"all://(x://h)/p":            "after the last )",
		"all://(x://h)?a=%zz":        "bad percent escape",
		"all://(x://h)#f":            "after the last )",
		"all://(x://h)(x://h:0)":     "in parentheses 2: malformed URL: host 1: bad port",
		"all://(x://u:s3cret%40h)":   "in parentheses 1: malformed URL: host 1: bad port",
		"all://(x://u:s3c(ret@h)":    "without its )",
		"all://(x://u:s3c)ret@h)":    "after the last )",
		"all://(x://u:s3c)(ret@h)":   "want URLs",
		"all://(x://u:s3c)?ret@h)":   "after the last )",
		"all://(x://u:1/s3cret@h)":   "in parentheses 1",
		"all://(x://u:1#s3cret@h)":   "in parentheses 1",
		"all://(a://(x://u:s3c)r@h)": "in parentheses 1",
	} {
		u, err := driver.ParseURL(raw)
		if err == nil {
			t.Errorf("%s is taken as %v", raw, u)
		} else if !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "s3c") {
			t.Errorf("%s: %v, want it to say %q and no password", raw, err, part)
		}
	}
}
