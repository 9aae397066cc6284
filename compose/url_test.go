package compose_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

func init() {
	driver.Register("prefixed", func(_ context.Context, u *driver.URL) (driver.Driver, error) {
		d := named{memory.New(), u.Param("prefix", "none")}
		return d, u.Done()
	})
}

// named is a store whose name is its prefix.
type named struct {
	*memory.Driver
	name string
}

func (d named) String() string { return d.name }

func TestURL(t *testing.T) {
	for raw, want := range map[string]string{
		"all://(prefixed://)(prefixed://?prefix=a)?prefix=b&ttl=3s":                                   "all of b and a",
		"all://(prefixed://)(prefixed://)?authority=0":                                                "all of none and none",
		"fallback://(prefixed://?prefix=a)(all://(prefixed://)(memory://))?patience=3s&prefix=b":      "a or all of b and memory",
		"tokenbase://(prefixed://)?n=4611686018427387904&prefix=b":                                    "b",
		"all://(prefixed://u:s3c(r)et@h/p?prefix=a)(tokenbase://(prefixed://?prefix=c)?n=7&prefix=d)": "all of a and c",
	} {
		l, err := locker.Open(t.Context(), raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
			continue
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		_, err = l.Acquire(t.Context(), "x")
		var e *locker.Error
		if !errors.As(err, &e) || e.Store != want {
			t.Errorf("%s opens %q, want %q", raw, e.Store, want)
		}
	}
}

func TestURLAuthority(t *testing.T) {
	for authority, want := range map[string]bool{"0": false, "1": true} {
		l, err := locker.Open(t.Context(), "all://(prefixed://)(tokenbase://(prefixed://)?n=1000000000)?authority="+authority)
		if err != nil {
			t.Fatal(err)
		}
		k := acquire(t, l)
		if got := k.Token() > 1000000000; got != want {
			t.Errorf("authority %s: token %d", authority, k.Token())
		}
		release(t, k)
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestURLRefused(t *testing.T) {
	const bad = "prefixed://u:s3cret@h"
	for raw, want := range map[string]string{
		"all://":                                            "at least one URL",
		"all://h":                                           "at least one URL",
		"all://(" + bad + ")?authority=1":                   "there are 1 stores",
		"all://(" + bad + ")?authority=-1":                  "whole number",
		"all://(" + bad + ")?patience=3s":                   `unknown parameter "patience" (known: authority, prefix, ttl)`,
		"all://(" + bad + "?color=red)":                     `prefixed://h: unknown parameter "color"`,
		"all://(" + bad + "?ttl=3s)":                        `unknown parameter "ttl"`,
		"all://(" + bad + ")(nosuch://u:s3cret@h)":          `unknown scheme "nosuch"`,
		"fallback://(" + bad + ")":                          "two URLs",
		"fallback://(" + bad + ")(" + bad + ")?patience=0s": "duration greater than zero",
		"tokenbase://(" + bad + ")":                         "parameter n",
		"tokenbase://(" + bad + ")?n=4611686018427387905":   "parameter n",
		"tokenbase://(" + bad + ")(" + bad + ")?n=1":        "one URL",
		"memory://(" + bad + ")":                            "memory:// takes no URLs in parentheses",
		"redis://(" + bad + ")":                             "redis",
		"postgres://(" + bad + ")":                          "postgres",
	} {
		l, err := locker.Open(t.Context(), raw)
		if err == nil {
			t.Errorf("%s is opened", raw)
			_ = l.Close()
		} else if !errors.Is(err, locker.ErrInvalidOption) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want it to say %q and no password", raw, err, want)
		}
	}
}

// closes counts the drivers of the scheme "closes" that are open.
type closes struct{ *memory.Driver }

var open atomic.Int64

func init() {
	driver.Register("closes", func(_ context.Context, u *driver.URL) (driver.Driver, error) {
		open.Add(1)
		return closes{memory.New()}, u.Done()
	})
}

func (d closes) Close() error {
	open.Add(-1)
	return d.Driver.Close()
}

// If one of several stores cannot be opened, those before it are closed.
func TestURLThatFailsLeavesNothingOpen(t *testing.T) {
	for _, raw := range []string{"all://(closes://)(closes://)(memory://a,b)", "fallback://(closes://)(memory://?color=red)"} {
		if l, err := locker.Open(t.Context(), raw); err == nil {
			t.Errorf("%s is opened as %v", raw, l)
		}
		if n := open.Load(); n != 0 {
			t.Errorf("%s: %d stores are left open", raw, n)
		}
	}
}
