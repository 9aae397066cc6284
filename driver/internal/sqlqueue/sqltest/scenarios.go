package sqltest

import (
	"context"
	"errors"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A scenario is what two processes do with one lock.
type scenario struct {
	name    string
	victims int // how many of them meet faults
	play    func(a, b *process)
}

const (
	attended  = 1300 * time.Millisecond          // by then a process that waits has sent a heartbeat, and notices arrive
	grantSeen = faultTime + liveness/4 + busy    // without a notice a grant is in the answer to a heartbeat
	lossSeen  = faultTime + 10*liveness/4 + busy // and a loss in every tenth
)

func try(r *driver.Request)    { r.Wait = false }
func shared(r *driver.Request) { r.Shared, r.Limit = true, 2 }

var scenarios = []scenario{
	{"alone", 1, func(a, _ *process) {
		a.take(nil).release()
		k := a.take(try)
		k.renew()
		k.release()
	}},
	{"wait", 2, func(a, b *process) {
		k, w := waiting(a, b)
		k.release()
		k = w.get()
		k.renew()
		k.release()
	}},
	{"refused", 2, func(a, b *process) {
		k := a.take(try)
		if _, err := b.ask(context.Background(), b.patience(), b.request(try)); err == nil || !errors.Is(err, driver.ErrNotAcquired) && !b.hit {
			b.fail("a try while another holds: %v", err)
		}
		k.release()
		b.take(try).release()
	}},
	{"shared", 2, func(a, b *process) {
		k, l := a.take(shared), b.take(shared)
		w := a.wait()
		time.Sleep(attended)
		k.release()
		l.renew()
		l.release()
		w.get().release()
	}},
	{"break", 2, func(a, b *process) {
		k, w := waiting(a, b)
		k.isHeld(true)
		b.breaks(k.token)
		l := w.get()
		k.renew()
		k.release()
		l.release()
	}},
	{"break-waiter", 2, func(a, b *process) {
		k, w := waiting(a, b)
		t, _ := a.find(w.id)
		a.breaks(t.Token)
		select {
		case l := <-w.ended:
			if l != nil || !errors.Is(w.err, driver.ErrLost) && !b.hit {
				b.fail("the wait for a ticket that was broken: %v", w.err)
			}
			k.release()
		case <-time.After(lossSeen):
			if again, there := a.find(w.id); !there || again.Token == t.Token { // else a late request has taken it anew
				b.fail("the wait for a ticket that was broken goes on")
			}
			k.release()
			w.get().release()
		}
	}},
	{"close", 2, func(a, b *process) {
		k, w := waiting(a, b)
		b.close()
		if l := <-w.ended; l != nil || !errors.Is(w.err, driver.ErrClosed) {
			b.fail("Close ends a wait with %v", w.err)
		}
		k.release()
		a.take(nil).release()
	}},
	{"two-waiters", 2, func(a, b *process) {
		k, w := waiting(a, b)
		v := b.wait()
		k.release()
		w.get().release()
		v.get().release()
	}},
	{"given-up", 2, func(a, b *process) {
		k, w := waiting(a, b)
		w.leave()
		if l := <-w.ended; l != nil {
			b.fail("granted what another holds")
		}
		k.release()
		a.take(nil).release()
	}},
}

// waiting has one process hold the lock, and another one wait for it.
func waiting(a, b *process) (*ticket, *wait) {
	k, w := a.take(nil), b.wait()
	time.Sleep(attended)
	return k, w
}

// breaks breaks a ticket, until the store has answered.
func (p *process) breaks(token uint64) {
	for i := range 4 {
		err := p.call(context.Background(), "break", callBound/2, func(ctx context.Context) error { return p.Driver.(driver.Breaker).Break(ctx, p.name, token) })
		if i == 0 && errors.Is(err, driver.ErrLost) {
			p.fail("break: %v", err)
		}
		if err == nil || errors.Is(err, driver.ErrLost) {
			return
		}
	}
	p.stop("the break is not confirmed")
}
