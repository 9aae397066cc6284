package postgres_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// A request that fails because its context has ended returns that reason, even if the connection, which has
// the same deadline, timed out first.
func TestEndOfTheContextIsTold(t *testing.T) {
	t.Parallel()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(unique()))
	_, err := d.Inspect(t.Context(), "a")
	ok(t, err)
	for range p.Config().MaxConns { // so that requests open connections themselves
		c, err := p.Acquire(t.Context())
		ok(t, err)
		defer c.Release()
	}
	for i := range 300 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*10*time.Microsecond)
		_, err = d.Inspect(ctx, "a")
		cancel()
		if err != nil {
			is(t, err, context.DeadlineExceeded)
		}
	}
}

// A removal that has to wait for a lock of the database ends before its client gives up, which would break the
// connection. Clients that give up open as many new ones as there are removals and tries, which may keep a server
// from the removals for good.
func TestBusyQueueBreaksNoConnection(t *testing.T) {
	t.Parallel()
	const waiters = 5
	srv := testbed.Postgres(t)
	d, p := newDriver(t, srv.URL())
	l := newLocker(t, d)
	held, err := l.Acquire(t.Context(), "a", locker.WithTTL(time.Minute))
	ok(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var left sync.WaitGroup
	for range waiters {
		left.Go(func() {
			_, err := l.Acquire(ctx, "a")
			is(t, err, context.Canceled)
		})
	}
	queued(t, l, "a", waiters+1)
	user := newPool(t, srv.URL(), nil)
	tx, err := user.Begin(t.Context())
	ok(t, err)
	_, err = tx.Exec(t.Context(), "LOCK TABLE locker_tickets IN SHARE ROW EXCLUSIVE MODE")
	ok(t, err)
	before := p.Stat().NewConnsCount()
	cancel()
	left.Wait()
	time.Sleep(6 * time.Second)
	if n := p.Stat().NewConnsCount() - before; n > 0 {
		t.Errorf("%d connections were opened for the removal of %d tickets", n, waiters)
	}
	ok(t, tx.Rollback(t.Context()))
	waitFor(t, "the tickets to be removed", func() bool {
		q, err := l.Inspect(t.Context(), "a")
		return err == nil && len(q.Tickets) == 1
	})
	ok(t, held.Release(t.Context()))
}

// So does Break.
func TestBreakOfABusyQueueBreaksNoConnection(t *testing.T) {
	t.Parallel()
	prefix := unique()
	url := testbed.SharedPostgres(t).URL()
	d, p := newDriver(t, url, postgres.WithPrefix(prefix))
	held, err := newLocker(t, d).Acquire(t.Context(), "a", locker.WithTTL(time.Minute))
	ok(t, err)
	tx, err := newPool(t, url, nil).Begin(t.Context())
	ok(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "LOCK TABLE "+prefix+"_tickets IN SHARE ROW EXCLUSIVE MODE")
	ok(t, err)
	before := p.Stat().TotalConns()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	is(t, d.Break(ctx, "a", held.Token()), locker.ErrUnavailable)
	if n := p.Stat().TotalConns(); n < before {
		t.Errorf("%d of %d connections are left", n, before)
	}
	ok(t, tx.Rollback(t.Context()))
	ok(t, held.Release(t.Context()))
}
