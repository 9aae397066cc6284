package casqueue

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// slowly has a process get the answers to what it asks for and writes after 50 ms, and queue a ticket after 10 ms: on
// what it knows, which is old.
func (b *bed) slowly(e *Engine, p *process) {
	p.with(func(verb, _ string) fault { return map[string]fault{"get": slow, "put": slow}[verb] })
	r := request("a", "later")
	r.Wait = true
	time.AfterFunc(10*time.Millisecond, func() { _, _ = e.Acquire(b.Context(), r) })
}

// Who inspects a queue sees what was there when it asked, also if this process begins a write meanwhile that replaces
// what is there no more.
func TestInspectBesideLaterWrite(t *testing.T) {
	bubble(t, func(b *bed) {
		other, _ := b.open()
		b.take(other, request("a", "1"))
		e, p := b.open()
		b.queue(e, "a")
		if err := other.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
			b.Fatal(err)
		}
		b.slowly(e, p)
		if ids := b.queue(e, "a"); len(ids) != 0 {
			b.Errorf("queue %q after the release of 1 was answered", ids)
		}
	})
}

// A renewal of a ticket that was removed fails, also if this process begins such a write meanwhile (D12).
func TestRenewalBesideLaterWrite(t *testing.T) {
	bubble(t, func(b *bed) {
		e, p := b.open()
		r := request("a", "1")
		g := b.take(e, r)
		other, _ := b.open()
		if err := other.Break(b.Context(), "a", g.Token); err != nil {
			b.Fatal(err)
		}
		b.slowly(e, p)
		if err := e.Renew(b.Context(), r.Hold(g.Token), r.TTL); !errors.Is(err, driver.ErrLost) {
			b.Errorf("renewal of a ticket that was removed: %v", err)
		}
	})
}

// So does a renewal that is begun while an older reading is answered, if this process then begins a write on what that
// reading has found.
func TestRenewalBesideOlderReading(t *testing.T) {
	bubble(t, func(b *bed) {
		e, p := b.open()
		r := request("a", "1")
		g := b.take(e, r)
		other, _ := b.open()
		b.waits(other, request("a", "2"))
		p.with(func(verb, _ string) fault { return map[string]fault{"get": slow, "put": slow}[verb] })
		go func() { _, _ = e.Inspect(b.Context(), "a") }() // finds both, and is answered after 50 ms
		time.Sleep(10 * time.Millisecond)
		if err := other.Break(b.Context(), "a", g.Token); err != nil {
			b.Fatal(err)
		}
		time.AfterFunc(45*time.Millisecond, func() {
			later := request("a", "later")
			later.Wait = true
			_, _ = e.Acquire(b.Context(), later)
		})
		time.Sleep(10 * time.Millisecond)
		if err := e.Renew(b.Context(), r.Hold(g.Token), r.TTL); !errors.Is(err, driver.ErrLost) {
			b.Errorf("renewal of a ticket that was removed: %v", err)
		}
	})
}

// A document that was created is not taken for missing because a reading comes late that has found none.
func TestReadingBeforeCreation(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open(func(o *Options) { o.LatePuts = true })
		e.mu.Lock()
		f := e.fileOf(e.key("a"))
		e.mu.Unlock()
		begun := time.Now()
		time.Sleep(time.Millisecond)
		created, err := e.create(f)
		if err != nil {
			b.Fatal(err)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		e.took(f, Document{}, begun)
		if f.version != created {
			b.Errorf("version %v, want that of the document that was created, %v", f.version, created)
		}
	})
}

// Nor is a ticket taken for lost because a reading comes while the document is created that has found the one which the
// store has forgotten.
func TestOldReadingBesideCreation(t *testing.T) {
	bubble(t, func(b *bed) {
		other, _ := b.open()
		b.take(other, request("a", "0"))
		if err := other.Release(b.Context(), driver.Hold{Name: "a", ID: "0"}); err != nil {
			b.Fatal(err)
		}
		time.Sleep(keepEmpty - 5*time.Millisecond)
		e, p := b.open(func(o *Options) { o.LatePuts = true })
		var gets, puts atomic.Int32
		p.with(func(verb, _ string) fault {
			switch {
			case verb == "get" && gets.Add(1) == 1:
				time.Sleep(10 * time.Millisecond) // before it is done
				return fine
			case verb == "get", verb == "put" && puts.Add(1) == 1:
				return slow
			}
			return fine
		})
		inspected := make(chan struct{})
		time.AfterFunc(time.Millisecond, func() {
			_, _ = e.Inspect(b.Context(), "a")
			close(inspected)
		})
		defer func() { <-inspected }()
		r := request("a", "1")
		g := b.take(e, r)
		p.with(nil)
		if err := e.Renew(b.Context(), r.Hold(g.Token), r.TTL); err != nil {
			b.Errorf("renewal of what was just granted: %v", err)
		}
	})
}

// Who reads a queue that this process changes all the time gets an answer: what the process has written since is as new as
// what was asked for.
func TestReadingBesideManyWrites(t *testing.T) {
	bubble(t, func(b *bed) {
		e, p := b.open()
		ctx, cancel := context.WithCancel(b.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			for i := 0; ctx.Err() == nil; i++ {
				r := request("a", fmt.Sprint(i))
				if _, err := e.Acquire(ctx, r); err == nil {
					_ = e.Release(ctx, r.Hold(0))
				}
			}
		}()
		time.Sleep(time.Second)
		p.with(func(verb, _ string) fault { return map[string]fault{"get": slow}[verb] })
		bound, end := context.WithTimeout(b.Context(), 10*time.Second)
		defer end()
		if _, err := e.Inspect(bound, "a"); err != nil {
			b.Error(err)
		}
		cancel()
		<-ended
	})
}
