package sqlite_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/sqlite"
)

func TestURL(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for url, file := range map[string]string{
		"sqlite://" + dir + "/abs.db":                       "abs.db",
		"sqlite://./relative.db?create=true&ttl=5s":         "relative.db",
		"sqlite://./sub/folder/a%20b%3F%23%25.db":           "sub/folder/a b?#%.db",
		"sqlite://../" + filepath.Base(dir) + "/up.db":      "up.db",
		"SQLITE://./busy.db?busy_timeout=100ms":             "busy.db",
		"sqlite://./w%C3%A4hrung.db?busy_timeout=1m&ttl=1s": "währung.db",
	} {
		l, err := locker.Open(ctx, url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if err := l.Ping(ctx); err != nil {
			t.Errorf("%s: %v", url, err)
		}
		acquire(t, l, "a")
		_ = l.Close()
		if _, err := os.Stat(filepath.Join(dir, file)); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestURLIsRefused(t *testing.T) {
	dir := t.TempDir()
	for url, why := range map[string]string{
		"sqlite://":                              "want sqlite:///absolute/path.db or sqlite://./relative/path.db",
		"sqlite:///":                             "want sqlite:///absolute",
		"sqlite://locks.db":                      "want sqlite:///absolute",
		"sqlite://~/locks.db":                    "want sqlite:///absolute",
		"sqlite://user:secret@/locks.db":         "want sqlite:///absolute",
		"sqlite://" + dir + "/":                  "want sqlite:///absolute",
		"sqlite://" + dir + "/a?prefix=jobs":     "a file is a space of locks of its own",
		"sqlite://" + dir + "/a?mode=ro":         `unknown parameter "mode" (known: busy_timeout, create, prefix, ttl)`,
		"sqlite://" + dir + "/a?busy_timeout=5":  "want a duration",
		"sqlite://" + dir + "/a?create=maybe":    "want true or false",
		"sqlite://" + dir + "/none?create=false": "the file does not exist",
	} {
		l, err := locker.Open(ctx, url)
		if err == nil {
			_ = l.Close()
			t.Errorf("%s was opened", url)
		} else if !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: error %q, want %q", url, err, why)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) > 0 {
		t.Errorf("a refused URL made %v", entries)
	}
}

func TestOptionsAreRefused(t *testing.T) {
	t.Parallel()
	for path, opt := range map[string]sqlite.Option{"": nil, ":memory:": nil, "x.db": sqlite.WithBusyTimeout(0)} {
		if d, err := sqlite.New(path, opt, nil); err == nil {
			_ = d.Close()
			t.Errorf("New(%q) with options that make no sense", path)
		}
	}
}
