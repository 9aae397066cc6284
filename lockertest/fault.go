package lockertest

import (
	"context"
	"errors"
	"time"

	"github.com/lockerproject/locker/driver"
)

// faultKind says how the store treats requests.
type faultKind uint8

const (
	healthy faultKind = iota
	down              // every request is refused
	hung              // no request is answered
)

var errDown = driver.Unavailable(errors.New("the store is down"))

// fault is a state of the connection to the store.
type fault struct {
	kind  faultKind
	delay time.Duration // of each request
}

// cut reports whether no request gets an answer.
func (f fault) cut() bool { return f.kind == down || f.kind == hung }

// set changes the state of the connection to the store.
func (d *faulty) set(f fault) {
	d.mu.Lock()
	defer d.mu.Unlock()
	cut := f.cut()
	switch {
	case !cut && d.reaper != nil:
		d.reaper.Stop()
		d.reaper = nil
	case cut && d.reaper == nil:
		d.reaper = time.AfterFunc(Liveness, d.reap)
	}
	d.fault = f
	close(d.changed)
	d.changed = make(chan struct{})
}

// state returns the present fault, and a channel that is closed when it changes.
func (d *faulty) state() (fault, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fault, d.changed
}

// reap removes the waiters of this process, which could not reach the store for
// Liveness.
func (d *faulty) reap() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.fault.cut() {
		return
	}
	for _, h := range d.waiting {
		_ = d.Driver.Release(context.Background(), h) // ErrLost: granted, and the lease is over
	}
}

// pass returns when a request reaches the store, or with the error why it does not.
func (d *faulty) pass(ctx context.Context) error {
	for {
		f, changed := d.state()
		if f.kind == down {
			return errDown
		}
		var arrived <-chan time.Time
		if f.kind == healthy {
			if f.delay <= 0 {
				return nil
			}
			t := time.NewTimer(f.delay)
			defer t.Stop()
			arrived = t.C
		}
		select {
		case <-arrived:
			return nil
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// listen waits until answers of the store arrive, and reports whether it had to
// wait.
func (d *faulty) listen(ctx context.Context) (late bool, err error) {
	for ; ; late = true {
		f, changed := d.state()
		if !f.cut() {
			return late, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return late, ended(ctx, f)
		}
	}
}

// ended is the error of a waiter whose context has ended. If the store refuses connections,
// the waiter knows that. From a store that hangs it has heard nothing.
func ended(ctx context.Context, f fault) error {
	if f.kind == down {
		return errors.Join(context.Cause(ctx), errDown)
	}
	return context.Cause(ctx)
}
