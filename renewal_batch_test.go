package locker_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// The timeout of a short lease does not bound the renewal of long ones.
func TestUrgentRenewalsAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &slow{Driver: memory.New()}
		l := locker.New(d)
		defer l.Close()
		long := acquire(t, l, "long", locker.WithTTL(30*time.Second))
		time.Sleep(10*time.Second - 20*time.Millisecond)
		acquire(t, l, "short", locker.WithTTL(60*time.Millisecond))
		time.Sleep(25 * time.Second)
		if err := long.Err(); err != nil || d.failed.Load() > 0 {
			t.Errorf("%v; %d renewals of the long lease were given up", err, d.failed.Load())
		}
	})
}

// slow takes a second for a batch with a long lease in it.
type slow struct {
	*memory.Driver
	failed atomic.Int64
}

func (d *slow) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	errs := make([]error, len(rs))
	for i, r := range rs {
		if r.TTL >= time.Second {
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				d.failed.Add(1)
				errs[i] = ctx.Err()
				continue
			}
		}
		errs[i] = d.Renew(ctx, r.Hold, r.TTL)
	}
	return errs
}

// A batch with too few answers is a failed request.
func TestShortAnswerToABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &events{}
		d := &short{Driver: memory.New()}
		l := locker.New(d, locker.WithObserver(seen.add))
		defer l.Close()
		k := acquire(t, l, "a", locker.WithTTL(3*time.Second))
		time.Sleep(1500 * time.Millisecond)
		if k.Err() != nil || len(seen.of(locker.EventRenewFailed)) == 0 {
			t.Errorf("%v, %d failed renewals", k.Err(), len(seen.of(locker.EventRenewFailed)))
		}
	})
}

type short struct{ *memory.Driver }

func (*short) RenewAll(context.Context, []driver.Renewal) []error { return nil }

// If a driver embeds another one and overrides only Renew, the core's renewals go
// through that Renew.
func TestEmbeddedRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(&failing{memory.New()})
		defer l.Close()
		<-acquire(t, l, "a", locker.WithTTL(time.Second)).Done()
	})
}

type failing struct{ *memory.Driver }

func (*failing) Renew(context.Context, driver.Hold, time.Duration) error { return errDown }

func TestBatchesRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &counting{Driver: memory.New()}
		l := locker.New(d)
		defer l.Close()
		for i := range 1000 {
			acquire(t, l, string(rune('a'+i)), locker.WithTTL(30*time.Second))
			time.Sleep(100 * time.Microsecond) // acquired over a tenth of a second
		}
		time.Sleep(30 * time.Second)
		if d.batches.Load() > 3 || d.entries.Load() < 2000 {
			t.Errorf("%d renewals in %d requests, want 2000 or more in at most 3", d.entries.Load(), d.batches.Load())
		}
	})
}

// counting counts batches of renewals.
type counting struct {
	*memory.Driver
	batches, entries atomic.Int64
}

func (d *counting) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	d.batches.Add(1)
	d.entries.Add(int64(len(rs)))
	errs := make([]error, len(rs))
	for i, r := range rs {
		errs[i] = d.Renew(ctx, r.Hold, r.TTL)
	}
	return errs
}

// A driver without batches is asked for a few renewals at a time.
func TestRenewalsWithoutBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		var under, most atomic.Int64
		s.renew = func(ctx context.Context, r driver.Renewal, next renewFunc) error {
			most.Store(max(most.Load(), under.Add(1)))
			defer under.Add(-1)
			time.Sleep(100 * time.Millisecond)
			return next(ctx, r)
		}
		l := locker.New(s)
		defer l.Close()
		const n = 100
		for i := range n {
			acquire(t, l, string(rune('a'+i)), locker.WithTTL(30*time.Second))
		}
		time.Sleep(15 * time.Second)
		if got := len(s.renewals()); got != n || most.Load() != 16 {
			t.Errorf("%d renewals of %d, %d at a time, want 16", got, n, most.Load())
		}
	})
}
