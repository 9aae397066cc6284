package compose_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// bare is a store that notifies of no loss, and has no other optional method.
type bare struct{ driver.Driver }

// The release of a lock that one part has lost says so, and removes it from the others.
func TestAllSaysThatALockIsLost(t *testing.T) {
	a, b := memory.New(), memory.New()
	l := locker.New(compose.All(bare{a.Join()}, bare{b.Join()}))
	defer l.Close()
	for _, d := range []*memory.Driver{a, b} {
		k := acquire(t, l)
		q, err := d.Inspect(t.Context(), "x")
		if err != nil || len(q) != 1 || d.Break(t.Context(), "x", q[0].Token) != nil {
			t.Fatalf("%v, %v", q, err)
		}
		if err := k.Release(t.Context()); !errors.Is(err, locker.ErrLost) {
			t.Errorf("got %v, want ErrLost", err)
		}
		if q, err := l.Inspect(t.Context(), "x"); err != nil || len(q.Tickets) != 0 {
			t.Errorf("left: %v, %v", q, err)
		}
	}
}

// batches is a store with batches, of which it answers the first entries only if it is short.
type batches struct {
	*memory.Driver
	short bool
	sizes []int
}

func (b *batches) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	b.sizes = append(b.sizes, len(rs))
	if b.short {
		return nil
	}
	errs := make([]error, len(rs))
	for i, r := range rs {
		errs[i] = b.Renew(ctx, r.Hold, r.TTL)
	}
	return errs
}

// Drivers of drivers pass batches on as batches, and take an answer of the wrong length for a
// failure of each renewal.
func TestBatchesStayBatches(t *testing.T) {
	for name, of := range map[string]func(d driver.Driver) driver.Driver{
		"all":       func(d driver.Driver) driver.Driver { return compose.All(d, memory.New()) },
		"fallback":  func(d driver.Driver) driver.Driver { return compose.Fallback(d, memory.New()) },
		"tokenbase": func(d driver.Driver) driver.Driver { return compose.TokenBase(d, 1000) },
	} {
		t.Run(name, func(t *testing.T) {
			store := &batches{Driver: memory.New()}
			d := of(store)
			defer d.Close()
			var rs []driver.Renewal
			for _, name := range []string{"a", "b", "c"} {
				r := driver.Request{Name: name, ID: name, TTL: time.Minute}
				g, err := d.Acquire(t.Context(), r)
				if err != nil {
					t.Fatal(err)
				}
				rs = append(rs, driver.Renewal{Hold: r.Hold(g.Token), TTL: time.Minute})
			}
			batched := d.(driver.BatchRenewer)
			if errs := batched.RenewAll(t.Context(), rs); len(errs) != 3 || errors.Join(errs...) != nil || !slices.Equal(store.sizes, []int{3}) {
				t.Errorf("%v, batches of %v", errs, store.sizes)
			}
			store.short = true
			errs := batched.RenewAll(t.Context(), rs)
			if len(errs) != 3 {
				t.Fatalf("%d answers to 3 renewals", len(errs))
			}
			for _, err := range errs {
				if err == nil || errors.Is(err, driver.ErrLost) {
					t.Errorf("got %v, want an error that is no loss", err)
				}
			}
		})
	}
}

// holds is a store that keeps the tokens that it is asked with, and shows a ticket without one.
type holds struct {
	driver.Driver
	tokens []uint64
}

func (d *holds) Release(_ context.Context, h driver.Hold) error {
	d.tokens = append(d.tokens, h.Token)
	return nil
}

func (*holds) Inspect(context.Context, string) ([]driver.Ticket, error) {
	return []driver.Ticket{{}, {Token: 7}}, nil
}

// A token that is not known stays unknown, whatever is added to the others.
func TestTokenBaseKeepsNoToken(t *testing.T) {
	store := &holds{Driver: memory.New()}
	d := compose.TokenBase(store, 1000)
	defer d.Close()
	for _, token := range []uint64{0, 1007} {
		if err := d.Release(t.Context(), driver.Hold{Name: "x", ID: "1", Token: token}); err != nil {
			t.Error(err)
		}
	}
	if !slices.Equal(store.tokens, []uint64{0, 7}) {
		t.Errorf("asked with the tokens %d", store.tokens)
	}
	if q, err := d.Inspect(t.Context(), "x"); err != nil || q[0].Token != 0 || q[1].Token != 1007 {
		t.Errorf("shown as %v, %v", q, err)
	}
}

// A Ping that was under way when the primary said that a ticket is lost, and that has no
// answer, does not make it away again.
func TestFallbackHearsThePrimaryDuringAPing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newBacked(t)
		other := acquire(t, p.on[0])
		got := p.background(t)
		p.first.hangs.Store(true)
		release(t, acquire(t, p.all)) // on the secondary
		time.Sleep(10 * time.Second)
		for p.first.pinging.Load() == 0 {
			time.Sleep(time.Millisecond)
		}
		p.first.hangs.Store(false)
		if err := p.on[0].Break(t.Context(), "x", p.queue(t, 0, 2).Tickets[1].Token); err != nil {
			t.Fatal(err)
		}
		for p.first.pinging.Load() != 0 {
			time.Sleep(time.Millisecond)
		}
		if _, err := p.all.TryAcquire(t.Context(), "x"); !errors.Is(err, locker.ErrNotAcquired) {
			t.Errorf("got %v, want the primary's answer", err)
		}
		release(t, other)
		release(t, <-got)
		p.reported(t, 1)
	})
}
