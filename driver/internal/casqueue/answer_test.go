package casqueue

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Inspect shows all changes that were answered before it was called, even if an older write of this process is answered
// meanwhile.
func TestInspectBesideLateAnswer(t *testing.T) {
	bubble(t, func(b *bed) {
		other, o := b.open()
		o.with(func(verb, _ string) fault { return map[string]fault{"set": notDone}[verb] }) // no notifications
		b.take(other, request("a", "1"))
		e, p := b.open()
		b.waits(e, request("a", "2"))
		time.Sleep(2300 * time.Millisecond) // between two samples of the waiter
		p.with(func(verb, key string) fault {
			if verb == "put" || verb == "get" && strings.Contains(key, ":q:") {
				return slow
			}
			return fine
		})
		third := request("a", "3")
		third.Wait = true
		go func() { _, _ = e.Acquire(b.Context(), third) }()
		time.Sleep(10 * time.Millisecond)
		if err := other.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
			b.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
		if ids := b.queue(e, "a"); !slices.Equal(ids, []string{"2", "3"}) {
			b.Errorf("queue %q after the release of 1 was answered", ids)
		}
	})
}

// A process that is notified while its own write is being answered reads the change that the notification is about.
func TestNotifiedBesideLateAnswer(t *testing.T) {
	bubble(t, func(b *bed) {
		other, _ := b.open()
		b.take(other, request("a", "1"))
		e, p := b.open(func(o *Options) { o.Store = watching{o.Store.(*process)} })
		got := b.waits(e, request("a", "2"))
		time.Sleep(2300 * time.Millisecond) // between two samples of the waiter
		p.with(func(verb, key string) fault {
			if verb == "put" || verb == "get" && strings.Contains(key, ":q:") {
				return slow
			}
			return fine
		})
		third := request("a", "3")
		third.Wait = true
		go func() { _, _ = e.Acquire(b.Context(), third) }()
		time.Sleep(10 * time.Millisecond)
		if err := other.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
			b.Fatal(err)
		}
		begun := time.Now()
		if err := <-got; err != nil || time.Since(begun) > 110*time.Millisecond {
			b.Errorf("granted %v after the release (%v)", time.Since(begun), err)
		}
	})
}

// A release whose answer was lost notifies the next waiter too (D13).
func TestReleaseUnanswered(t *testing.T) {
	bubble(t, func(b *bed) {
		holder, p := b.open()
		b.take(holder, request("a", "1"))
		e, _ := b.open()
		got := b.waits(e, request("a", "2"))
		time.Sleep(2500 * time.Millisecond) // between two samples of the waiter
		b.queue(holder, "a")                // so that the first write of the release succeeds
		p.once("put", noAnswer)
		puts := b.count("put")
		if err := holder.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
			b.Fatal(err)
		}
		if n := b.count("put") - puts; n != 2 {
			b.Fatalf("%d writes, want one that is done and not answered, and one that finds that", n)
		}
		begun := time.Now()
		if err := <-got; err != nil || time.Since(begun) > 100*time.Millisecond {
			b.Errorf("granted %v after the release (%v)", time.Since(begun), err)
		}
	})
}

// A release whose answer was lost notifies the next waiter, even if this process reads the queue before it knows that
// the answer is lost (D13).
func TestReleaseReadBeforeItsLoss(t *testing.T) {
	bubble(t, func(b *bed) {
		holder, p := b.open()
		b.take(holder, request("a", "1"))
		e, _ := b.open()
		got := b.waits(e, request("a", "2"))
		time.Sleep(2400 * time.Millisecond) // between two samples of the waiter
		b.queue(holder, "a")                // so that the first write of the release succeeds
		p.once("put", slowLoss)
		released := make(chan error)
		go func() { released <- holder.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}) }()
		time.Sleep(20 * time.Millisecond)
		if ids := b.queue(holder, "a"); len(ids) != 1 {
			b.Errorf("queue %q while the answer is on its way", ids)
		}
		if err := <-released; err != nil {
			b.Fatal(err)
		}
		begun := time.Now()
		if err := <-got; err != nil || time.Since(begun) > 100*time.Millisecond {
			b.Errorf("granted %v after the release (%v)", time.Since(begun), err)
		}
	})
}

// A process that has seen a document of another program notices when that document is gone.
func TestForeignDocumentIsGone(t *testing.T) {
	bubble(t, func(b *bed) {
		e, p := b.open()
		b.queue(e, "a")
		if err := p.Set(b.Context(), e.key("a"), []byte("not ours"), time.Hour); err != nil {
			b.Fatal(err)
		}
		if _, err := e.Inspect(b.Context(), "a"); err == nil {
			b.Error("inspect: no error")
		}
		b.lose("")
		b.queue(e, "a")
		b.take(e, request("a", "1"))
		if _, err := e.Acquire(b.Context(), request("a", "2")); !errors.Is(err, driver.ErrNotAcquired) {
			b.Errorf("beside a holder: %v", err)
		}
	})
}

// A reading from before a write of this process, whose answer comes after that of the write, is old: the ticket is
// there.
func TestReadingBeforeWrite(t *testing.T) {
	bubble(t, func(b *bed) {
		other, _ := b.open()
		b.take(other, request("a", "1"))
		e, p := b.open()
		b.queue(e, "a")
		p.with(func(verb, _ string) fault {
			if verb == "put" {
				time.Sleep(10 * time.Millisecond)
			}
			return map[string]fault{"get": slow}[verb]
		})
		second := request("a", "2")
		second.Wait = true
		got := make(chan error, 1)
		go func() {
			_, err := e.Acquire(b.Context(), second)
			got <- err
		}()
		time.Sleep(5 * time.Millisecond)
		b.queue(e, "a")
		select {
		case err := <-got:
			b.Errorf("a ticket that waits: %v", err)
		case <-time.After(100 * time.Millisecond):
		}
	})
}

// The answer to a write is older than what was read since: a process does not return to the older content.
func TestAnswerAfterReading(t *testing.T) {
	bubble(t, func(b *bed) {
		other, o := b.open()
		o.with(func(verb, _ string) fault { return map[string]fault{"set": notDone}[verb] }) // no notifications
		b.take(other, request("a", "1"))
		e, p := b.open()
		b.waits(e, request("a", "2"))
		time.Sleep(2300 * time.Millisecond) // between two samples of the waiter
		p.once("put", slow)
		third := request("a", "3")
		third.Wait = true
		go func() { _, _ = e.Acquire(b.Context(), third) }()
		time.Sleep(10 * time.Millisecond)
		if err := other.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
			b.Fatal(err)
		}
		b.queue(e, "a")
		for begun := time.Now(); time.Since(begun) < 50*time.Millisecond; time.Sleep(20 * time.Microsecond) {
			e.mu.Lock()
			n := len(e.files[e.key("a")].doc.find("a").Tickets)
			e.mu.Unlock()
			if n != 2 {
				b.Fatalf("%d tickets, want the two that were read", n)
			}
		}
	})
}

// An unanswered write may still be done, even if the process has reconnected meanwhile and has read the document
// without it.
func TestLatePutOfOldConnection(t *testing.T) {
	bubble(t, func(b *bed) {
		e, p := b.open()
		b.take(e, request("a", "0"))
		if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "0"}); err != nil {
			b.Fatal(err)
		}
		p.with(func(verb, key string) fault {
			if verb != "put" {
				return fine
			}
			p.with(nil)
			e.mu.Lock()
			e.files[key].version.Era++ // as if it were read on another connection
			e.mu.Unlock()
			return late
		})
		ctx, cancel := context.WithTimeout(b.Context(), 10*time.Millisecond)
		defer cancel()
		if _, err := e.Acquire(ctx, request("a", "1")); err == nil || errors.Is(err, driver.ErrNoTicket) {
			b.Fatalf("acquire: %v, want an error that may have left a ticket", err)
		}
		time.Sleep(time.Second)
		if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != driver.ErrLost { //nolint:errorlint // the sentinel itself
			b.Errorf("release: %v", err)
		}
		p.arrive()
		if ids := b.stored("a"); len(ids) != 0 {
			b.Errorf("queue %q after a late put", ids)
		}
	})
}

// An answered write was done, even if the process has reconnected meanwhile and has read the document as it was before
// the write.
func TestAnswerOfOldConnection(t *testing.T) {
	bubble(t, func(b *bed) {
		holder, _ := b.open()
		b.take(holder, request("a", "0"))
		e, p := b.open()
		b.queue(e, "a")
		p.with(func(verb, key string) fault {
			if verb == "put" {
				p.with(nil)
				e.mu.Lock()
				e.files[key].version.Era++ // as if it were read on another connection
				e.mu.Unlock()
			}
			return fine
		})
		select {
		case err := <-b.waits(e, request("a", "1")):
			b.Errorf("a ticket that waits: %v", err)
		case <-time.After(time.Second):
		}
	})
}

// Of two readings, the one that began second may be done first and answered last. It is then older than a write of
// this process that began in between.
func TestOldReadingBesideWrite(t *testing.T) {
	for _, put := range []fault{slow, slowLoss} {
		bubble(t, func(b *bed) {
			other, _ := b.open()
			b.take(other, request("a", "1"))
			e, p := b.open()
			var gets atomic.Int32
			p.with(func(verb, _ string) fault {
				switch {
				case verb == "put":
					return put
				case verb != "get":
					return fine
				}
				if gets.Add(1) == 1 {
					time.Sleep(10 * time.Millisecond) // before it is done
					return fine
				}
				return slow
			})
			got := make(chan error, 1)
			second := request("a", "2")
			second.Wait = true
			go func() {
				_, err := e.Acquire(b.Context(), second)
				got <- err
			}()
			time.Sleep(time.Millisecond)
			go func() { _, _ = e.Inspect(b.Context(), "a") }()
			time.Sleep(time.Millisecond)
			b.waits(other, request("a", "3"))
			time.Sleep(53 * time.Millisecond) // the inspection is answered, and the write is not
			e.mu.Lock()
			if f := e.files[e.key("a")]; !f.writing || len(f.doc.find("a").Tickets) != 2 {
				b.Errorf("%d tickets, want the two that the write replaces", len(f.doc.find("a").Tickets))
			}
			e.mu.Unlock()
			p.with(nil)
			select {
			case err := <-got:
				b.Errorf("a ticket that waits: %v", err)
			case <-time.After(200 * time.Millisecond):
			}
		})
	}
}

// A call after Close fails, and its change does not stay.
func TestCallAfterClose(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		b.take(e, request("a", "1"))
		_ = e.Close()
		if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); !errors.Is(err, driver.ErrClosed) {
			b.Errorf("a release after Close: %v, want ErrClosed", err)
		}
		b.books(e)
	})
}

// What a caller has asked for is not done once the caller has left, if it waited for its turn until then.
func TestCallerLeftBeforeWrite(t *testing.T) {
	bubble(t, func(b *bed) {
		e, p := b.open()
		g := b.take(e, request("a", "1"))
		p.once("put", slow)
		joined := make(chan struct{})
		go func() {
			r := request("a", "2")
			r.Wait, r.Joined = true, func() { close(joined) }
			_, _ = e.Acquire(b.Context(), r)
		}()
		time.Sleep(10 * time.Millisecond) // it is being written
		ctx, cancel := context.WithTimeout(b.Context(), 10*time.Millisecond)
		defer cancel()
		if err := e.Break(ctx, "a", g.Token); !errors.Is(err, context.DeadlineExceeded) {
			b.Errorf("a break behind a slow write: %v", err)
		}
		<-joined
		time.Sleep(time.Second)
		if ids := b.queue(e, "a"); len(ids) != 2 || ids[0] != "1" {
			b.Errorf("the queue is %v after a break whose caller had left, want 1 and 2", ids)
		}
	})
}
