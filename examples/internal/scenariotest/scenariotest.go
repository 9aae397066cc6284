// Package scenariotest runs the programs in examples in tests.
package scenariotest

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/internal/testbed"
)

// Run runs a program on memory, in a bubble where waiting takes no time, and on
// Redis, and has check look at what comes out. On a store that nobody knows the
// program must fail.
func Run[R any](t *testing.T, run func(ctx context.Context, url string) (R, error), check func(t *testing.T, r R)) {
	on := func(t *testing.T, url string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := run(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("\n%v", r)
		check(t, r)
	}
	t.Run("memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) { on(t, "memory://"+rand.Text()) })
	})
	t.Run("redis", func(t *testing.T) {
		url, separator := testbed.SharedRedis(t).URL(), "?"
		if strings.Contains(url, "?") {
			separator = "&"
		}
		on(t, url+separator+"prefix="+rand.Text()) // its locks are nobody else's
	})
	t.Run("no store", func(t *testing.T) {
		if _, err := run(t.Context(), "nosuch://"); err == nil {
			t.Error("no error for a store that nobody knows")
		}
	})
}
