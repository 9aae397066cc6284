package compose_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// slowRelease is a driver whose releases take time, and whose grants come though their callers have gone.
type slowRelease struct{ *memory.Driver }

func (d slowRelease) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return d.Driver.Acquire(context.WithoutCancel(ctx), r)
}

func (d slowRelease) Release(ctx context.Context, h driver.Hold) error {
	time.Sleep(100 * time.Millisecond)
	return d.Driver.Release(ctx, h)
}

// TestAllLeavesNoTicketOfAnEndedWait: a wait ends while an observer hears of it, and its ticket is granted on the first store.
func TestAllLeavesNoTicketOfAnEndedWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := memory.New(), memory.New()
		defer a.Close()
		defer b.Close()
		holder := locker.New(a.Join())
		defer holder.Close()
		held, err := holder.Acquire(t.Context(), "x")
		if err != nil {
			t.Fatal(err)
		}
		blocked, unblock := make(chan struct{}), make(chan struct{})
		l := locker.New(compose.All(slowRelease{a.Join()}, b.Join()), locker.WithObserver(func(_ context.Context, e locker.Event) {
			if e.Kind == locker.EventWaiting {
				close(blocked)
				<-unblock
			}
		}))
		defer l.Close()
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() {
			_, err := l.Acquire(ctx, "x")
			ended <- err
		}()
		<-blocked
		if err := held.Release(t.Context()); err != nil { // granted on the first
			t.Fatal(err)
		}
		cancel()
		synctest.Wait() // the release is sent to the first store
		close(unblock)
		if err := <-ended; err == nil {
			t.Error("granted")
		}
		time.Sleep(20 * time.Second)
		for i, d := range []*memory.Driver{a, b} {
			if q, err := d.Inspect(t.Context(), "x"); err != nil || len(q) != 0 {
				t.Errorf("store %d: %+v, %v", i, q, err)
			}
		}
	})
}

// TestAllTellsHowTheCallEnded: a wait that has ended says so, also if its ticket was lost just before (D7).
func TestAllTellsHowTheCallEnded(t *testing.T) {
	a, b := memory.New(), memory.New()
	defer a.Close()
	defer b.Close()
	if _, err := a.Join().Acquire(t.Context(), driver.Request{Name: "x", ID: "1", TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	d := compose.All(a.Join(), b.Join())
	defer d.Close()
	for i := range 20 { // the loss and the end are there at the same time
		ctx, cancel := context.WithCancelCause(t.Context())
		cause := errors.New("left")
		_, err := d.Acquire(ctx, driver.Request{Name: "x", ID: strconv.Itoa(2 + i), TTL: time.Minute, Wait: true, Joined: func() {
			q, _ := a.Inspect(ctx, "x")
			if err := a.Break(ctx, "x", q[1].Token); err != nil {
				t.Error(err)
			}
			cancel(cause)
		}})
		if !errors.Is(err, cause) {
			t.Errorf("%v, want the cause of the end", err)
		}
	}
}

// slowToLeave is a driver that returns 50 ms after the end of its caller's context, as every driver may, with a grant.
type slowToLeave struct{ *memory.Driver }

func (d slowToLeave) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	<-ctx.Done()
	time.Sleep(50 * time.Millisecond)
	return d.Driver.Acquire(context.WithoutCancel(ctx), r)
}

// All returns within 50 ms of the end of its caller's context, however many stores may take that long.
func TestAllEndsWithItsCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := compose.All(slowToLeave{memory.New()}, slowToLeave{memory.New()})
		defer d.Close()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		begun := time.Now()
		r := driver.Request{Name: "x", ID: "1", TTL: time.Minute, Renewed: true}
		_, err := d.Acquire(ctx, r)
		if took := time.Since(begun); !errors.Is(err, context.Canceled) || took > 1050*time.Millisecond {
			t.Errorf("after %v: %v", took, err)
		}
		if err := d.Release(t.Context(), r.Hold(0)); err != nil && !errors.Is(err, driver.ErrLost) {
			t.Error(err)
		}
	})
}
