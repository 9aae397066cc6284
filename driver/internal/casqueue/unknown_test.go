package casqueue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A put whose answer was lost is found by the ticket's ID.
func TestAnswerLost(t *testing.T) {
	bubble(t, func(b *bed) {
		e, p := b.open()
		p.once("put", noAnswer)
		b.take(e, request("a", "1"))
		if ids := b.queue(e, "a"); len(ids) != 1 {
			b.Errorf("queue %q, want one ticket", ids)
		}
		p.once("put", noAnswer)
		if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
			b.Errorf("a release that was done, and not answered: %v", err)
		}
		if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != driver.ErrLost { //nolint:errorlint // the sentinel itself
			b.Errorf("a second release: %v", err)
		}
	})
}

// One lost message, such as a cluster loses when it elects a leader, fails no request. If the store stays silent, the
// request ends after two timeouts.
func TestSilence(t *testing.T) {
	for _, verb := range []string{"get", "put"} {
		bubble(t, func(b *bed) {
			e, p := b.open()
			p.once(verb, silent)
			b.take(e, request("a", "1"))
			p.once(verb, silent)
			if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
				b.Errorf("a release beside a lost %s: %v", verb, err)
			}
			p.with(func(v, _ string) fault {
				if v == verb {
					return silent
				}
				return fine
			})
			begun := time.Now()
			if _, err := e.Acquire(b.Context(), request("b", "2")); !errors.Is(err, errSilent) {
				b.Errorf("acquire from a store that answers no %s: %v", verb, err)
			}
			if d := time.Since(begun); d < 2*silence || d > 2*silence+time.Second {
				b.Errorf("it took %v, want two timeouts", d)
			}
		})
	}
}

// A release that has found no ticket is a loss, even if another change was written with it and not answered (D13).
func TestReleaseBesideAnswerLost(t *testing.T) {
	bubble(t, func(b *bed) {
		e, p := b.open()
		r := request("a", "1")
		g := b.take(e, r)
		other, _ := b.open()
		if err := other.Break(b.Context(), "a", g.Token); err != nil {
			b.Fatal(err)
		}
		b.queue(e, "a")
		var calls sync.WaitGroup
		shared := func(id string) {
			calls.Go(func() {
				r := request("a", id)
				r.Shared = true
				if _, err := e.Acquire(b.Context(), r); err != nil {
					b.Error(err)
				}
			})
		}
		p.once("put", slow)
		shared("2")
		time.Sleep(10 * time.Millisecond) // while that is written, the rest waits, and is written together
		p.once("put", noAnswer)
		shared("3")
		calls.Go(func() {
			if err := e.Release(b.Context(), r.Hold(g.Token)); err != driver.ErrLost { //nolint:errorlint // the sentinel itself
				b.Errorf("release of a ticket that was broken: %v", err)
			}
		})
		calls.Wait()
	})
}

// A put that was not answered and is still on its way must not be done after the release of its ticket was
// answered, whether the document exists or not (D13).
func TestLatePut(t *testing.T) {
	for _, exists := range []bool{false, true} {
		bubble(t, func(b *bed) {
			e, p := b.open()
			if exists {
				b.take(e, request("a", "0"))
				if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "0"}); err != nil {
					b.Fatal(err)
				}
			}
			p.with(func(verb, _ string) fault {
				if verb == "put" {
					return late
				}
				return fine
			})
			if _, err := e.Acquire(b.Context(), request("a", "1")); err == nil || errors.Is(err, driver.ErrNoTicket) {
				b.Fatalf("acquire: %v, want an error that may have left a ticket", err)
			}
			p.with(nil)
			if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != driver.ErrLost { //nolint:errorlint // the sentinel itself
				b.Errorf("release: %v", err)
			}
			p.arrive()
			other, _ := b.open()
			if ids := b.queue(other, "a"); len(ids) != 0 {
				b.Errorf("queue %q after a late put (document before: %v)", ids, exists)
			}
		})
	}
}

// An unanswered put makes no ticket even when the store has forgotten the document: its ticket was released long ago,
// and would live as long as its process.
func TestLatePutOfForgotten(t *testing.T) {
	for done := range int32(2) { // of the puts of Acquire, before one is late
		bubble(t, func(b *bed) {
			e, p := b.open(func(o *Options) { o.LatePuts = true })
			var puts atomic.Int32
			p.with(func(verb, _ string) fault {
				if verb == "put" && puts.Add(1) > done {
					return late
				}
				return fine
			})
			r := request("a", "1")
			if _, err := e.Acquire(b.Context(), r); (done == 0) != errors.Is(err, driver.ErrNoTicket) {
				b.Errorf("acquire, with %d puts that were done: %v", done, err)
			}
			p.with(nil)
			if err := e.Release(b.Context(), r.Hold(0)); err != driver.ErrLost { //nolint:errorlint // the sentinel itself
				b.Errorf("release: %v", err)
			}
			time.Sleep(keepEmpty + time.Minute)
			p.arrive()
			if ids := b.stored("a"); len(ids) != 0 {
				b.Errorf("queue %q after late puts, of which all but %d were late", ids, done)
			}
		})
	}
}

// A request that has not reached the store leaves no ticket, and says so.
func TestNoTicket(t *testing.T) {
	bubble(t, func(b *bed) {
		e, p := b.open()
		p.with(func(string, string) fault { return notDone })
		if _, err := e.Acquire(b.Context(), request("a", "1")); !errors.Is(err, driver.ErrNoTicket) || !errors.Is(err, errNotDone) {
			b.Errorf("acquire without a store: %v", err)
		}
	})
}

// A put that is answered just when its caller leaves may have made a ticket: only a put that failed leaves none.
func TestAnsweredWhileCallerGoes(t *testing.T) {
	for i := range 50 {
		bubble(t, func(b *bed) {
			e, _ := b.open()
			if i%2 == 0 {
				b.take(e, request("a", "0"))
			}
			b.take(e, request("b", "9"))
			const requests = 200 * time.Microsecond // in which the bubble's store answers a get and a put
			ctx, cancel := context.WithTimeout(b.Context(), requests)
			defer cancel()
			r := request("a", "1")
			_, err := e.Acquire(ctx, r)
			if queued := slices.Contains(b.queue(e, "a"), r.ID); queued && errors.Is(err, driver.ErrNoTicket) {
				b.Errorf("the ticket is queued, and the error is %v", err)
			}
		})
	}
}

// A caller that leaves while the document is read for it leaves no ticket, even if the name is free by then.
func TestCallerGoesWhileReading(t *testing.T) {
	for _, wait := range []bool{false, true} {
		bubble(t, func(b *bed) {
			e, p := b.open()
			p.once("get", slow)
			ctx, cancel := context.WithTimeout(b.Context(), time.Millisecond)
			defer cancel()
			r := request("a", "1")
			r.Wait = wait
			if _, err := e.Acquire(ctx, r); !errors.Is(err, context.DeadlineExceeded) {
				b.Errorf("acquire: %v, want the end of its context", err)
			}
			time.Sleep(time.Second)
			if ids := b.queue(e, "a"); len(ids) != 0 {
				b.Errorf("queue %q, want none (wait: %v)", ids, wait)
			}
		})
	}
}

// A repeated request that has not reached the store says nothing about the one before, which may have left a ticket,
// or may still leave one.
func TestAskedAgainForNothing(t *testing.T) {
	for _, what := range []fault{late, noAnswer, fine} {
		bubble(t, func(b *bed) {
			e, p := b.open()
			r := request("a", "1")
			p.with(func(verb, _ string) fault { return map[string]fault{"put": what}[verb] })
			if _, err := e.Acquire(b.Context(), r); what != fine && (err == nil || errors.Is(err, driver.ErrNoTicket)) {
				b.Errorf("first: %v", err)
			}
			e.mu.Lock()
			e.files[e.key("a")].known = false // it has to be read before it is written
			e.mu.Unlock()
			p.with(func(string, string) fault { return notDone })
			if _, err := e.Acquire(b.Context(), r); err == nil || errors.Is(err, driver.ErrNoTicket) {
				b.Errorf("asked again: %v", err)
			}
			p.with(nil)
			p.arrive()
			if err := e.Release(b.Context(), r.Hold(0)); err != nil {
				b.Errorf("release: %v", err)
			}
		})
	}
}

// A ticket whose caller left while it was being written is kept alive by nobody: it goes even if it is not released.
func TestCallerLeavesDuringWrite(t *testing.T) {
	bubble(t, func(b *bed) {
		holder, _ := b.open()
		b.take(holder, request("a", "1"))
		e, p := b.open()
		b.queue(e, "a")
		p.once("put", slow)
		if err := b.waitsFor(e, request("a", "2"), 20*time.Millisecond); err == nil {
			b.Fatal("granted behind a holder")
		}
		time.Sleep(time.Second)
		if ids := b.stored("a"); len(ids) != 2 {
			b.Fatalf("queue %q: the ticket was to be written", ids)
		}
		b.waits(holder, request("a", "3")) // which observes the others
		time.Sleep(e.Bounds(10 * time.Second).Liveness)
		if ids := b.queue(holder, "a"); len(ids) != 2 {
			b.Errorf("queue %q, want the holder and one waiter", ids)
		}
	})
}
