package locker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

// pusher is a stub whose driver reports losses when the test wants.
type pusher struct {
	*stub
	notify func(driver.Hold, error)
}

func (p *pusher) NotifyLoss(notify func(driver.Hold, error)) { p.notify = notify }

// A loss that the driver reports just before its Acquire returns is not forgotten: another
// ticket is queued.
func TestLossBeforeTheGrantIsAdded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pusher{stub: newStub()}
		lost := 0
		p.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			g, err := next(ctx, r)
			if lost++; lost == 1 {
				_ = p.Driver.Release(ctx, r.Hold(g.Token)) // by an operator
				p.notify(r.Hold(g.Token), errors.New("deleted by an operator"))
			}
			return g, err
		}
		l := locker.New(p)
		defer l.Close()
		k := acquire(t, l, "a")
		if lost != 2 || p.queueLen(t, "a") != 1 {
			t.Errorf("%d tickets were granted, and %d are held, want the second of two", lost, p.queueLen(t, "a"))
		}
		time.Sleep(time.Minute)
		release(t, k)
		p.notify(driver.Hold{Name: "a", ID: "nobody's"}, errors.New("deleted"))
	})
}

// A Locker whose Acquire returns a group, as a wrapper may, can be used for AcquireAll.
func TestGroupOfGroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		k, err := locker.AcquireAll(t.Context(), pairs{l}, []string{"b", "a"})
		if err != nil {
			t.Fatal(err)
		}
		if k.Name() != "a/1,a/2,b/1,b/2" || len(k.Locks()) != 4 {
			t.Errorf("the group is %s", k.Name())
		}
		release(t, k)
		for _, name := range []string{"a/1", "a/2", "b/1", "b/2"} {
			if n := s.queueLen(t, name); n != 0 {
				t.Errorf("%d tickets of %s are left", n, name)
			}
		}
	})
}

// pairs takes two locks for each name.
type pairs struct{ *locker.Client }

func (p pairs) Acquire(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	return locker.AcquireAll(ctx, p.Client, []string{name + "/1", name + "/2"}, opts...)
}
