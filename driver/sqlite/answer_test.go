package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/sqlite"
)

// If the answer to a grant was lost, the next check finds the grant, and its lease runs for its whole length from then.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	var lost atomic.Bool
	a := openAt(t, path)
	granted := func() bool {
		tickets, _ := a.Inspect(ctx, "a")
		return len(tickets) == 1 && tickets[0].ID == "2" && tickets[0].Held
	}
	b := openAt(t, path, sqlite.WithInterceptor(func(_ context.Context, access func() error) error {
		err := access()
		if granted() && !lost.Swap(true) {
			return errors.New("the answer was lost")
		}
		return err
	}))
	if err := try(t, a, "a"); err != nil {
		t.Fatal(err)
	}
	r := driver.Request{
		Name: "a", ID: "2", TTL: 10 * time.Second, Wait: true,
		Joined: func() { _ = a.Release(ctx, driver.Hold{Name: "a", ID: "a"}) },
	}
	c, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	g, err := b.Acquire(c, r)
	if err != nil {
		t.Fatal(err)
	}
	if !lost.Load() {
		t.Error("no answer was lost")
	}
	tickets, err := a.Inspect(ctx, "a")
	if err != nil || len(tickets) != 1 || time.Until(g.Asked.Add(r.TTL)) > tickets[0].Remaining {
		t.Errorf("granted until %v, and the store says %v (%v)", g.Asked.Add(r.TTL), tickets, err)
	}
}

// A transaction that fails changes nothing.
func TestFailedTransaction(t *testing.T) {
	t.Parallel()
	d := openAt(t, newPath(t))
	if err := try(t, d, "a"); err != nil {
		t.Fatal(err)
	}
	if err := d.Abort("DELETE FROM tickets"); !errors.Is(err, sqlite.ErrAborted) {
		t.Fatal(err)
	}
	if tickets, err := d.Inspect(ctx, "a"); err != nil || len(tickets) != 1 {
		t.Errorf("the queue after a transaction that failed: %v, %v", tickets, err)
	}
}

// The caller of a ticket that was granted leaves before the driver has made its lease a whole one. The ticket is there, and
// the core has to remove it.
func TestLeavesAfterTheGrant(t *testing.T) {
	t.Parallel()
	d := openAt(t, newPath(t))
	for i := range 20 {
		name := fmt.Sprint("n", i)
		if err := try(t, d, name); err != nil {
			t.Fatal(err)
		}
		leaving, leave := context.WithCancel(ctx)
		defer leave()
		_, err := d.Acquire(leaving, driver.Request{Name: name, ID: "2", TTL: time.Minute, Wait: true, Joined: func() {
			if err := d.Release(ctx, driver.Hold{Name: name, ID: name}); err != nil {
				t.Error(err)
			}
			leave()
		}})
		tickets, err2 := d.Inspect(ctx, name)
		if err == nil || err2 != nil || len(tickets) != 1 || !tickets[0].Held {
			t.Fatalf("%v; the queue: %v, %v", err, tickets, err2)
		}
		if errors.Is(err, driver.ErrNoTicket) {
			t.Fatalf("%v means that there is no ticket, and there is: %+v", err, tickets)
		}
	}
}
