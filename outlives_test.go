package locker_test

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

// The ticket of a lost lock is removed when all its handles have ended: until then somebody may
// work under the lock, and the ticket on another store keeps the next one out.
func TestLostTicketOutlivesItsHandles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pusher{stub: newStub()}
		l := locker.New(p)
		defer l.Close()
		var handles []*locker.Lock
		for range 1000 {
			k := acquire(t, l, "a", locker.WithOwner("me"))
			_ = k.Context(t.Context())
			handles = append(handles, k)
		}
		held := 0
		p.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
			for _, k := range handles {
				select {
				case <-k.Done():
				default:
					held++
				}
			}
			return next(ctx, h)
		}
		q, err := p.Inspect(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		p.notify(driver.Hold{Name: "a", ID: q[0].ID, Token: q[0].Token}, errors.New("deleted on one of two stores"))
		synctest.Wait()
		if held != 0 || p.queueLen(t, "a") != 0 {
			t.Errorf("%d handles were held when the ticket was removed, and %d tickets are left; want none", held, p.queueLen(t, "a"))
		}
	})
}

// The ticket is removed when the contexts of a handle have ended, also if somebody else ends it
// at the same moment.
func TestTicketOutlivesItsContexts(t *testing.T) {
	for how, f := range map[string]func(p *pusher, l *locker.Client, k *locker.Lock, h driver.Hold){
		"a loss beside Err": func(p *pusher, _ *locker.Client, k *locker.Lock, h driver.Hold) {
			go p.notify(h, errors.New("deleted"))
			for k.Err() == nil {
				runtime.Gosched()
			}
		},
		"Release": func(_ *pusher, _ *locker.Client, k *locker.Lock, _ driver.Hold) {
			_ = k.Release(context.Background())
		},
		"a loss beside Release": func(p *pusher, _ *locker.Client, k *locker.Lock, h driver.Hold) {
			go p.notify(h, errors.New("deleted"))
			_ = k.Release(context.Background())
		},
		"Close beside Release": func(_ *pusher, l *locker.Client, k *locker.Lock, _ driver.Hold) {
			go l.Close()
			_ = k.Release(context.Background())
		},
	} {
		t.Run(how, func(t *testing.T) {
			for range 10 {
				p := &pusher{stub: newStub()}
				l := locker.New(p)
				k := acquire(t, l, "a")
				ctxs := make([]context.Context, 400)
				for i := range 200 {
					ctxs[i] = k.Context(t.Context())
				}
				for i := range 200 { // those derived from one end after it
					derived, cancel := context.WithCancel(ctxs[0])
					defer cancel()
					ctxs[200+i] = derived
				}
				var alive atomic.Int64
				p.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
					for _, ctx := range ctxs {
						if ctx.Err() == nil {
							alive.Add(1)
						}
					}
					return next(ctx, h)
				}
				q, err := p.Inspect(t.Context(), "a")
				if err != nil {
					t.Fatal(err)
				}
				f(p, l, k, driver.Hold{Name: "a", ID: q[0].ID, Token: q[0].Token})
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				if n := alive.Load(); n > 0 {
					t.Fatalf("%d contexts were alive when the ticket was removed", n)
				}
			}
		})
	}
}

// Close removes the ticket of a lock that is lost at the same moment.
func TestCloseBesideALoss(t *testing.T) {
	for range 10 {
		p := &pusher{stub: newStub()}
		other := p.Join()
		l := locker.New(p)
		var handles []*locker.Lock
		for range 1000 {
			k := acquire(t, l, "a", locker.WithOwner("me"))
			_ = k.Context(t.Context())
			handles = append(handles, k)
		}
		q, err := p.Inspect(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		go p.notify(driver.Hold{Name: "a", ID: q[0].ID, Token: q[0].Token}, errors.New("deleted"))
		<-handles[0].Done() // the others follow
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if q, err := other.Inspect(t.Context(), "a"); err != nil || len(q) > 0 {
			t.Fatalf("left after Close: %v, %v", q, err)
		}
		_ = other.Close()
	}
}
