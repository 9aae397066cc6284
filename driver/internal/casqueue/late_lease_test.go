package casqueue

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A change of a lease that was not answered may still be done. It must not shorten the lease that a later renewal has been
// answered for (D12), or that others count on.
func TestLateShorterLease(t *testing.T) {
	bubble(t, func(b *bed) {
		e, p := b.open()
		r := request("a", "1")
		h := r.Hold(b.take(e, r).Token)
		time.Sleep(9 * time.Second)
		p.with(func(verb, _ string) fault {
			if verb == "put" {
				return late
			}
			return fine
		})
		if err := e.Renew(b.Context(), h, 2*time.Second); !errors.Is(err, errNotDone) {
			b.Fatalf("renewal for less without an answer: %v", err)
		}
		p.with(nil)
		if err := e.Renew(b.Context(), h, r.TTL); err != nil {
			b.Fatal(err)
		}
		p.arrive()
		puts := b.count("put")
		if err := e.Renew(b.Context(), h, r.TTL); err != nil || b.count("put") > puts {
			b.Errorf("renewed with %d writes, which is settled: %v", b.count("put")-puts, err)
		}
		if took := b.ended(e, "a"); took < r.TTL-time.Second {
			b.Errorf("the lease ended %v after it was renewed for %v", took, r.TTL)
		}
	})
}

// delayed is a store that does each Put after some time.
type delayed struct {
	*process
	by time.Duration
}

func (d delayed) Put(ctx context.Context, key string, value []byte, read Version, keep time.Duration) (Version, error) {
	time.Sleep(d.by)
	return d.process.Put(ctx, key, value, read, keep)
}

// A renewal does not overtake one for less that is being written (D12): the lease would become shorter than it was answered
// for.
func TestRenewalBesideShorterOne(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open(func(o *Options) { o.Store = delayed{o.Store.(*process), 50 * time.Millisecond} })
		r := request("a", "1")
		h := r.Hold(b.take(e, r).Token)
		time.Sleep(9 * time.Second)
		shorter := make(chan error, 1)
		go func() { shorter <- e.Renew(b.Context(), h, 2*time.Second) }()
		time.Sleep(10 * time.Millisecond)
		if err := errors.Join(e.Renew(b.Context(), h, r.TTL), <-shorter); err != nil {
			b.Fatal(err)
		}
		if took := b.ended(e, "a"); took < r.TTL-time.Second {
			b.Errorf("the lease ended %v after it was renewed for %v", took, r.TTL)
		}
	})
}

// A renewal waits for all changes of its lease, and not only for the first one.
func TestRenewalBesideTwo(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open(func(o *Options) { o.Store = delayed{o.Store.(*process), 2 * time.Second} })
		r := request("a", "1")
		h := r.Hold(b.take(e, r).Token)
		r.TTL = 11 * time.Second
		renewed := make(chan error, 2)
		go func() { renewed <- e.Renew(b.Context(), h, r.TTL) }()
		time.Sleep(time.Second)
		go func() { renewed <- e.Renew(b.Context(), h, 9100*time.Millisecond) }() // written after that, it ends the lease later
		if err := <-renewed; err != nil {
			b.Fatal(err)
		}
		time.Sleep(1900 * time.Millisecond)
		if err := errors.Join(e.Renew(b.Context(), h, r.TTL), <-renewed); err != nil {
			b.Fatal(err)
		}
		if took := b.ended(e, "a"); took < r.TTL-200*time.Millisecond {
			b.Errorf("the lease ended %v after it was renewed for %v", took, r.TTL)
		}
	})
}

// losing is a store that forgets the queues once they have been read.
type losing struct {
	*process
	armed atomic.Bool
}

func (l *losing) Get(ctx context.Context, keys ...string) ([]Document, error) {
	docs, err := l.process.Get(ctx, keys...)
	if l.armed.Swap(false) {
		l.lose(":q:")
	}
	return docs, err
}

// A heartbeat does not renew the lease of a holder whose machine was suspended for longer than its life, though its monotonic
// clock stood still: others may have read the one before, and be about to remove the ticket.
func TestHeartbeatAfterSuspension(t *testing.T) {
	b := &bed{t, newFake()} // in no bubble, which has no monotonic clock
	l := &losing{process: &process{fake: b.fake}}
	e, _ := b.open(func(o *Options) { o.Store = l })
	r := request("a", "1")
	h := r.Hold(b.take(e, r).Token)
	e.mu.Lock()
	setBack(&e.tickets["1"].alive, 20*time.Second)
	setBack(&e.files[e.key("a")].putSent, 20*time.Second)
	e.mu.Unlock()
	l.armed.Store(true) // as if another process, which has found the ticket expired before the heartbeat, removed it
	if err := e.Renew(b.Context(), h, r.TTL); err == nil {
		b.Error("a lease was renewed whose ticket is gone")
	}
}

// A renewal does not wait for a change of another ticket that the store does not answer: the lease could end meanwhile.
func TestRenewalBesideUnansweredChange(t *testing.T) {
	bubble(t, func(b *bed) {
		e, p := b.open()
		r := request("a", "1")
		h := r.Hold(b.take(e, r).Token)
		p.with(func(verb, key string) fault {
			if verb == "put" {
				return silent
			}
			return fine
		})
		failed := make(chan error, 1)
		go func() {
			waiter := request("a", "2")
			waiter.Wait = true
			_, err := e.Acquire(b.Context(), waiter)
			failed <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		if err := e.Renew(ctx, h, r.TTL); err != nil {
			b.Errorf("while a change is being written: %v", err)
		}
		if err := <-failed; !errors.Is(err, errSilent) {
			b.Fatal(err)
		}
		ctx, cancel = context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		if err := e.Renew(ctx, h, r.TTL); err != nil {
			b.Errorf("after a change was not answered: %v", err)
		}
		p.with(nil)
	})
}

// The end of a lease that was asked for before a renewal, and written after it, without an answer: it may still be done, so
// the next renewal is written.
func TestLateShortenBesideRenewal(t *testing.T) {
	bubble(t, func(b *bed) {
		e, p := b.open()
		r := request("a", "1")
		h := r.Hold(b.take(e, r).Token)
		var renewed atomic.Bool
		p.with(func(verb, _ string) fault {
			switch {
			case verb == "time":
				return slow
			case verb == "put" && renewed.Load():
				return late
			}
			return fine
		})
		ended := make(chan error, 1)
		go func() { ended <- e.Shorten(b.Context(), h, time.Second) }()
		synctest.Wait()
		r.TTL = 20 * time.Second
		if err := e.Renew(b.Context(), h, r.TTL); err != nil {
			b.Fatal(err)
		}
		renewed.Store(true)
		if err := <-ended; !errors.Is(err, errNotDone) {
			b.Fatalf("the end of the lease, without an answer: %v", err)
		}
		p.with(nil)
		if err := e.Renew(b.Context(), h, r.TTL); err != nil {
			b.Fatal(err)
		}
		p.arrive()
		if took := b.ended(e, "a"); took < r.TTL-time.Second {
			b.Errorf("the lease ended %v after it was renewed for %v", took, r.TTL)
		}
	})
}
