package mysql_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

// cycle takes and releases a name until its row is kept.
func cycle(t *testing.T, l *locker.Client, name string) (last uint64) {
	t.Helper()
	for range 3 {
		k := take(t, l, name)
		last = k.Token()
		must(t, k.Release(t.Context()))
	}
	return last
}

// A name that is used often leaves a row, one that is used once does not; the row is
// removed when the driver is closed.
func TestKeptRows(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		a, _, prefix := fresh(t, db)
		must(t, take(t, a, "once").Release(t.Context()))
		cycle(t, a, "often")
		if n := count(t, db, prefix+"_tickets"); n != 1 {
			t.Errorf("%d rows are kept, want that of often", n)
		}
		line, err := a.Inspect(t.Context(), "often")
		must(t, err)
		names, err := a.List(t.Context())
		must(t, err)
		if len(line.Tickets)+len(names) != 0 {
			t.Errorf("a row that is kept is shown: %+v, %q", line.Tickets, names)
		}
		must(t, a.Close())
		if n := count(t, db, prefix+"_tickets"); n != 0 {
			t.Errorf("%d rows are left after Close", n)
		}
	})
}

// A row that one process keeps is taken by others, of all kinds, and numbers grow.
func TestKeptRowsOfOthers(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		a, d, prefix := fresh(t, db)
		b, _ := join(t, connect(t, srv, "?clientFoundRows=true"), prefix)
		last := cycle(t, a, "a")
		for i, opts := range [][]locker.Option{nil, {locker.WithOwner("somebody"), locker.WithNote("else")}, {locker.Shared()}, {locker.Limit(2)}, nil} {
			for _, l := range []*locker.Client{a, b} {
				k, err := l.TryAcquire(t.Context(), "a", opts...)
				must(t, err)
				if k.Token() <= last {
					t.Errorf("%d: token %d after %d", i, k.Token(), last)
				}
				last = k.Token()
				line, err := a.Inspect(t.Context(), "a")
				must(t, err)
				if len(line.Tickets) != 1 || line.Tickets[0].Token != last || line.Tickets[0].Owner != k.Owner() || line.Tickets[0].Shared != (i == 2 || i == 3) {
					t.Errorf("%d: %q holds %d, and the line is %+v", i, k.Owner(), last, line.Tickets)
				}
				if i < 2 || i == 4 {
					if k, err := a.TryAcquire(t.Context(), "a", locker.WithOwner("x")); !errors.Is(err, locker.ErrNotAcquired) {
						t.Errorf("%d: two hold a: %v, %v", i, k, err)
					}
				}
				must(t, k.Release(t.Context()))
			}
		}
		must(t, d.Sweep(t.Context()))
	})
}

// What was released is neither renewed nor released again, though its row is kept.
func TestKeptRowsAreNobodys(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		l, d, _ := fresh(t, connect(t, srv, "?clientFoundRows=true"))
		cycle(t, l, "a")
		r := driver.Request{Name: "a", ID: "late-1", TTL: time.Minute}
		g, err := d.Acquire(t.Context(), r)
		must(t, err)
		h := r.Hold(g.Token)
		must(t, d.Release(t.Context(), h))
		for _, h := range []driver.Hold{h, r.Hold(0)} {
			if err := d.Renew(t.Context(), h, time.Minute); !errors.Is(err, driver.ErrLost) {
				t.Errorf("a renewal after the release: %v", err)
			}
			if err := d.Release(t.Context(), h); !errors.Is(err, driver.ErrLost) {
				t.Errorf("a second release: %v", err)
			}
		}
		if err := d.Break(t.Context(), "a", g.Token); !errors.Is(err, driver.ErrLost) {
			t.Errorf("a break after the release: %v", err)
		}
		must(t, take(t, l, "a").Release(t.Context()))
	})
}

// The turns of a row come to an end, and numbers grow beyond.
func TestTurnsEnd(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, _, prefix := fresh(t, db)
		other, _ := join(t, db, prefix)
		cycle(t, l, "a")
		_, err := db.ExecContext(t.Context(), fmt.Sprintf("UPDATE %s_tickets SET turn = %d", prefix, mysql.Turns-21))
		must(t, err)
		var last uint64
		for i := range 40 {
			k := take(t, []*locker.Client{l, other}[i/3%2], "a")
			if k.Token() <= last {
				t.Errorf("token %d after %d", k.Token(), last)
			}
			last = k.Token()
			must(t, k.Release(t.Context()))
		}
	})
}

// A request to take a kept row whose caller has gone takes nothing, be it done before
// the release that undoes it or after.
func TestKeptRowAndNobody(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		direct, d, prefix := fresh(t, db)
		r := driver.Request{Name: "a", TTL: time.Minute, Wait: true}
		for i := range 3 {
			r.ID = fmt.Sprint("first-", i)
			g, err := d.Acquire(t.Context(), r)
			must(t, err)
			must(t, d.Release(t.Context(), r.Hold(g.Token)))
		}
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		var seq int
		must(t, tx.QueryRowContext(t.Context(), "SELECT seq FROM "+prefix+"_tickets WHERE place = 'a' FOR UPDATE").Scan(&seq))
		r.ID = "gone-1"
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		if _, err := d.Acquire(ctx, r); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("acquired a row that is locked: %v", err)
		}
		var group sync.WaitGroup
		group.Go(func() {
			if err := d.Release(t.Context(), r.Hold(0)); err != nil && !errors.Is(err, driver.ErrLost) {
				t.Error(err)
			}
		})
		time.Sleep(200 * time.Millisecond) // both wait for the row
		must(t, tx.Commit())
		group.Wait()
		begun := time.Now()
		must(t, take(t, direct, "a").Release(t.Context()))
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("what nobody holds was granted after %v", took)
		}
	})
}

// An answer that is lost, of each statement of a kept row's cycle, costs neither a
// ticket nor a lock.
func TestKeptRowLosesAnswers(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		direct, _, prefix := fresh(t, connect(t, srv, ""))
		proxy := srv.Proxy(t)
		u, err := driver.ParseURL(proxy.URL() + "?prefix=" + prefix)
		must(t, err)
		d, err := driver.Open(t.Context(), u)
		must(t, err)
		l := locker.New(d)
		t.Cleanup(func() { must(t, l.Close()) })
		last := cycle(t, l, "a")
		for _, ofRelease := range []bool{false, true} {
			var lost <-chan struct{}
			if !ofRelease {
				lost = proxy.LoseReply("SET turn = ")
			}
			k := take(t, l, "a")
			if ofRelease {
				lost = proxy.LoseReply("SET turn = ")
			}
			if k.Token() <= last {
				t.Errorf("token %d after %d", k.Token(), last)
			}
			last = k.Token()
			line, err := direct.Inspect(t.Context(), "a")
			must(t, err)
			if len(line.Tickets) != 1 || line.Tickets[0].Token != last {
				t.Errorf("%d is held, and the line is %+v", last, line.Tickets)
			}
			must(t, k.Release(t.Context()))
			<-lost
			cycle(t, l, "a")
			k, err = direct.TryAcquire(t.Context(), "a")
			must(t, err)
			last = k.Token()
			must(t, k.Release(t.Context()))
			last = max(last, cycle(t, l, "a"))
		}
	})
}

// A transaction that guards a lock whose row is a kept one holds up the release that
// the core sends when the lease is over.
func TestGuardOfAKeptRow(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		a, d, prefix := fresh(t, db)
		b, _ := join(t, db, prefix)
		cycle(t, a, "a")
		k := take(t, a, "a", locker.WithTTL(500*time.Millisecond), locker.WithoutRenewal())
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		must(t, d.Guard(t.Context(), tx, k))
		must(t, k.Extend(t.Context(), time.Second))
		<-k.Done()
		time.Sleep(300 * time.Millisecond) // its release has been sent
		waiting, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if k, err := b.Acquire(waiting, "a"); err == nil {
			t.Errorf("granted %d while a transaction guards what was held", k.Token())
		}
		must(t, tx.Commit())
		next := take(t, b, "a")
		tx, err = db.BeginTx(t.Context(), nil)
		must(t, err)
		if err := d.Guard(t.Context(), tx, k); !errors.Is(err, driver.ErrLost) {
			t.Errorf("a late holder's transaction: %v", err)
		}
		must(t, tx.Rollback())
		must(t, next.Release(t.Context()))
	})
}

func TestEarlierLayout(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, _, prefix := fresh(t, db)
		_, err := db.ExecContext(t.Context(), "CREATE TABLE "+prefix+"_tickets (place VARBINARY(512) PRIMARY KEY, token BIGINT)")
		must(t, err)
		if _, err := l.Acquire(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "before 2") {
			t.Errorf("on tables of an earlier layout: %v", err)
		}
	})
}
