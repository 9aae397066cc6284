package postgres_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// A table of locks is often empty when its statistics are gathered. Then a plan that joins it with the leases to be
// renewed compares each with each: 5,000 took 5 to 27 s where they take 0.1 s, and would be lost.
func TestRenewalsWithOldStatistics(t *testing.T) {
	srv := testbed.SharedPostgres(t)
	prefix := unique()
	d, p := newDriver(t, srv.URL(), postgres.WithPrefix(prefix))
	const n, workers = 5000, 8
	rs := make([]driver.Renewal, n)
	take := func(round int) {
		t.Helper()
		var group sync.WaitGroup
		for w := range workers {
			group.Go(func() {
				for i := w; i < n; i += workers {
					r := driver.Request{Name: fmt.Sprint("n", i), ID: fmt.Sprint(round, "-", i), TTL: time.Minute, Renewed: true}
					g, err := d.Acquire(t.Context(), r)
					if err != nil {
						t.Error(err)
						return
					}
					rs[i] = driver.Renewal{Hold: r.Hold(g.Token), TTL: time.Minute}
				}
			})
		}
		group.Wait()
	}
	renew := func() time.Duration { // the fastest of three
		t.Helper()
		fastest := time.Hour
		for range 3 {
			begun := time.Now()
			for _, err := range d.RenewAll(t.Context(), rs) {
				ok(t, err)
			}
			fastest = min(fastest, time.Since(begun))
		}
		return fastest
	}
	take(0)
	before := renew()
	for _, r := range rs {
		ok(t, d.Release(t.Context(), r.Hold))
	}
	_, err := p.Exec(t.Context(), "VACUUM ANALYZE "+prefix+"_tickets")
	ok(t, err)
	take(1)
	if after := renew(); after > 20*before {
		t.Errorf("%d renewals take %v with statistics of an empty table, and %v without", n, after, before)
	}
}
