package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// fakeClock finds the library that has a server take its clock from a file (Debian: faketime).
func fakeClock(t *testing.T) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketimeMT.so.1")
	if len(found) == 0 {
		testbed.Lacks(t, "no libfaketime: apt-get install libfaketime")
	}
	return found[0]
}

// A step back of the server's clock lengthens leases and costs no lock. A step forward ends leases, and their holders
// are notified by the next renewal. New locks can be taken nevertheless, and tokens grow.
func TestServerClockSteps(t *testing.T) {
	library := fakeClock(t)
	steps := filepath.Join(serverDir(t), "clock")
	step := func(by string) {
		must(t, os.WriteFile(steps+"~", []byte(by+"\n"), 0o644)) //nolint:gosec // the server reads it
		must(t, os.Rename(steps+"~", steps))
	}
	step("+0")
	for name, value := range map[string]string{
		"LD_PRELOAD": library, "FAKETIME_TIMESTAMP_FILE": steps, "FAKETIME_NO_CACHE": "1", "FAKETIME_DONT_FAKE_MONOTONIC": "1",
	} {
		t.Setenv(name, value)
	}
	srv := testbed.MariaDB(t, testbed.Args("--server-id=3"))
	must(t, os.Unsetenv("LD_PRELOAD"))
	_, d, prefix := fresh(t, connect(t, srv, ""))
	_, other := join(t, connect(t, srv, ""), prefix)
	var last uint64
	for i, by := range []string{"+0", "-3600", "+3600", "-30", "+0"} {
		r := driver.Request{Name: "a", ID: fmt.Sprint("t-", i), TTL: 10 * time.Second, Wait: true}
		g, err := d.Acquire(t.Context(), r)
		must(t, err)
		if g.Token <= last {
			t.Errorf("%s: token %d after %d", by, g.Token, last)
		}
		last = g.Token
		step(by)
		ended := i == 2 || i == 4 // the clock went forward
		_, err = other.Acquire(t.Context(), driver.Request{Name: "a", ID: fmt.Sprint("o-", i), TTL: 10 * time.Second})
		if ended != (err == nil) || err != nil && !errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("%s: another acquires: %v", by, err)
		}
		if err == nil {
			if err := d.Renew(t.Context(), r.Hold(g.Token), 10*time.Second); !errors.Is(err, driver.ErrLost) {
				t.Errorf("%s: the holder renews: %v", by, err)
			}
			must(t, other.Release(t.Context(), driver.Hold{Name: "a", ID: fmt.Sprint("o-", i)}))
			continue
		}
		must(t, d.Renew(t.Context(), r.Hold(g.Token), 10*time.Second))
		must(t, d.Release(t.Context(), r.Hold(g.Token)))
	}
}

// After 2^24 calls of UUID_SHORT a server has another start. Those who wait are woken as before, and tokens grow.
func TestServerAfterManyNumbers(t *testing.T) {
	for name, start := range map[string]func(testing.TB, ...testbed.Option) *testbed.Server{"MariaDB": testbed.MariaDB, "MySQL": testbed.MySQL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := connect(t, start(t), "")
			a, _, prefix := fresh(t, db)
			b, _ := join(t, db, prefix)
			k := take(t, a, "a")
			passOn := func() (took time.Duration) {
				for _, to := range []*locker.Client{b, a, b, a, b, a} {
					granted := make(chan *locker.Lock, 1)
					go func() {
						k, err := to.Acquire(context.WithoutCancel(t.Context()), "a")
						if err != nil {
							t.Error(err)
						}
						granted <- k
					}()
					queued(t, a, "a", 2)
					took += testbed.Elapsed(func() {
						must(t, k.Release(t.Context()))
						last := k.Token()
						if k = <-granted; k.Token() <= last {
							t.Errorf("token %d after %d", k.Token(), last)
						}
					})
				}
				return took
			}
			before := passOn()
			do(t, db, "DO BENCHMARK(1 << 24, UUID_SHORT())")
			after := passOn()
			t.Logf("six hand-offs took %v, and then %v", before, after)
			if after > 3*time.Second { // those who are not woken sleep for two seconds
				t.Errorf("six hand-offs took %v", after)
			}
			must(t, k.Release(t.Context()))
		})
	}
}
