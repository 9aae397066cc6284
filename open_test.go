package locker_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
)

func TestMemoryTokensGrowForEver(t *testing.T) {
	last := uint64(0)
	for range 3 {
		l, err := locker.Open(t.Context(), "memory://tokens")
		if err != nil {
			t.Fatal(err)
		}
		k := acquire(t, l, "a")
		if k.Token() <= last {
			t.Errorf("token %d after %d", k.Token(), last)
		}
		last = k.Token()
		_ = l.Close()
	}
}

func TestOpenMemory(t *testing.T) {
	ctx := context.Background()
	open := func(url string) *locker.Client {
		t.Helper()
		l, err := locker.Open(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	one, same, other := open("memory://jobs"), open("memory://jobs?prefix=x"), open("memory://others")
	k := acquire(t, one, "a")
	_, err := same.TryAcquire(ctx, "a")
	want(t, err, locker.ErrNotAcquired)
	release(t, acquire(t, other, "a"))
	release(t, k)
	k = acquire(t, open("memory://"), "a")
	_, err = open("memory://").TryAcquire(ctx, "a")
	want(t, err, locker.ErrNotAcquired)
	release(t, k)
}

func TestOpenWithTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, err := locker.Open(context.Background(), "memory://ttl?ttl=7s", locker.WithSafetyMargin(0))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		begun := time.Now()
		<-acquire(t, l, "a", locker.WithoutRenewal()).Done()
		if d := time.Since(begun); d != 7*time.Second {
			t.Errorf("lease of %v, want 7s", d)
		}
	})
}

func TestOpenRefuses(t *testing.T) {
	for url, part := range map[string]string{
		"":                               "scheme://",
		"memory":                         "scheme://",
		"nosuch://host":                  `unknown scheme "nosuch" (registered: `,
		"memory://?colour=red":           `unknown parameter "colour" (known: prefix, ttl)`,
		"memory://?ttl=fast":             `ttl="fast": want a duration`,
		"memory://?ttl=-1s":              "want a duration greater than zero",
		"memory://?ttl=500us":            "parameter ttl: 500µs: want 1ms or more",
		"memory://?ttl=1s&ttl=2s":        "given 2 times",
		"memory://a:port":                "host 1: bad port: want 1 to 65535",
		"memory://a,b":                   "want memory:// or memory://name",
		"memory://u:secret@a":            "want memory:// or memory://name",
		"memory://u:sec%zzret@a":         "bad percent escape",
		"memory://u:secret/secret@a":     "an @ after",
		"memory://u:secret#secret@a":     "fragment",
		"nosuch://u:secret@host/%zz":     "bad percent escape in the path",
		"memory://a?%zz":                 "query",
		"nosuch://u:secret@h1:1,h2:2/db": "unknown scheme",
		"redis://u:secret@h":             `import _ "github.com/lockerproject/locker/driver/redis"`,
	} {
		l, err := locker.Open(context.Background(), url)
		if err == nil {
			t.Errorf("%s: no error", url)
			_ = l.Close()
			continue
		}
		want(t, err, locker.ErrInvalidOption)
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%s: %q does not say %q", url, err, part)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error contains the password: %v", url, err)
		}
	}
}
