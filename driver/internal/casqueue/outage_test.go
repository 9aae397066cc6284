package casqueue

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// counts returns how often each verb is asked for within d.
func (p *process) counts(d time.Duration, what fault) map[string]int {
	n := map[string]*atomic.Int64{"get": {}, "put": {}, "set": {}, "time": {}}
	p.with(func(verb, _ string) fault { n[verb].Add(1); return what })
	time.Sleep(d)
	p.with(nil)
	counts := make(map[string]int)
	for verb, c := range n {
		counts[verb] = int(c.Load())
	}
	return counts
}

// A process that waits asks a store that refuses everything five times a second, and goes on as before when the store
// does.
func TestPaceInOutage(t *testing.T) {
	bubble(t, func(b *bed) {
		holder, _ := b.open()
		r := request("a", "1")
		r.TTL = time.Hour
		g := b.take(holder, r)
		e, p := b.open()
		got := b.waits(e, request("a", "2"))
		time.Sleep(time.Second)
		if n := p.counts(10*time.Second, notDone); n["get"] < 40 || n["get"] > 60 || n["set"] > 60 || n["put"] > 0 {
			b.Errorf("%v requests in ten seconds, want some fifty readings, and heartbeats, and no other", n)
		}
		time.Sleep(time.Second)
		if n := p.counts(10*time.Second, fine); n["get"] < 100 || n["set"] < 5 || n["set"] > 15 {
			b.Errorf("%v requests in ten seconds after the outage", n)
		}
		if err := holder.Release(b.Context(), r.Hold(g.Token)); err != nil {
			b.Fatal(err)
		}
		if err := <-got; err != nil {
			b.Error(err)
		}
	})
}

// The error of a call that ends while it waits says what is wrong with the store, if its last request has failed.
func TestErrorInOutage(t *testing.T) {
	bubble(t, func(b *bed) {
		holder, _ := b.open()
		r := request("a", "1")
		r.TTL = time.Hour
		b.take(holder, r)
		e, p := b.open()
		wait := func() error {
			ctx, cancel := context.WithTimeout(b.Context(), 300*time.Millisecond)
			defer cancel()
			w := request("a", "2")
			w.Wait = true
			_, err := e.Acquire(ctx, w)
			return err
		}
		if err := wait(); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errNotDone) {
			b.Errorf("a wait that ended: %v, want the error of its context alone", err)
		}
		p.with(func(verb, _ string) fault {
			if verb == "get" {
				return notDone
			}
			return fine
		})
		if err := wait(); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errNotDone) {
			b.Errorf("a wait that ended while the store answered no reading: %v, want both errors", err)
		}
		p.with(nil)
		if err := wait(); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errNotDone) {
			b.Errorf("a wait that ended when the store answered again: %v, want the error of its context alone", err)
		}
		_ = e.Close()
		if err := wait(); !errors.Is(err, driver.ErrClosed) {
			b.Errorf("a wait after Close: %v, want ErrClosed", err)
		}
	})
}
