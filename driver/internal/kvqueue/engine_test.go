package kvqueue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// bed is an engine on a fake store, in a bubble with a clock of its own.
type bed struct {
	*testing.T
	store  *fake
	e      *Engine
	others []*Engine
	lost   map[string]error // by ID
}

func inBubble(t *testing.T, f func(b *bed)) {
	synctest.Test(t, func(t *testing.T) {
		b := &bed{T: t, store: newFake(), lost: make(map[string]error)}
		b.e = New(Options{Store: b.store})
		b.e.NotifyLoss(func(h driver.Hold, cause error) {
			if b.lost[h.ID] != nil {
				b.Errorf("the loss of %s is notified again: %v", h.ID, cause)
			}
			b.lost[h.ID] = cause
		})
		f(b)
		b.store.with(nil)
		synctest.Wait()
		for _, e := range append(b.others, b.e) {
			b.counts(e)
		}
		for _, e := range append(b.others, b.e) {
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		}
		if n := len(b.store.sessions); n > 0 {
			t.Errorf("%d sessions are left after Close", n)
		}
	})
}

// counts checks that the books of an engine agree with each other.
func (b *bed) counts(e *Engine) {
	b.Helper()
	e.mu.Lock()
	defer e.mu.Unlock()
	tickets, needed := make(map[*session]int), make(map[*session]int)
	for id, t := range e.tickets {
		tickets[t.session]++
		needed[t.session] += t.callers
		if t.ID != id || t.state == gone || e.keys[t.Key] != t || e.queues[t.Name] != t.queue || t.queue.slots[t.slot] != t {
			b.Errorf("ticket %s, in state %d, is not kept as it should be", id, t.state)
		}
	}
	for s := range e.sessions {
		if s.over {
			b.Errorf("session %s is over, and known", s.id)
		}
		if s.tickets != tickets[s] || s.needed != needed[s] {
			b.Errorf("session %s counts %d tickets and %d calls, want %d and %d", s.id, s.tickets, s.needed, tickets[s], needed[s])
		}
	}
	free := 0
	for _, q := range e.queues {
		free += len(q.slots) - len(q.free)
		if len(q.slots) == len(q.free) && q.watcher == nil {
			b.Errorf("queue %s is kept for nothing", q.name)
		}
	}
	if n := len(e.tickets); len(e.keys) != n || free != n {
		b.Errorf("%d tickets have %d keys and %d slots", n, len(e.keys), free)
	}
}

// another returns an engine of another process on the same store.
func (b *bed) another() *Engine {
	e := New(Options{Store: b.store})
	b.others = append(b.others, e)
	return e
}

func request(name, id string) driver.Request {
	return driver.Request{Name: name, ID: id, TTL: 30 * time.Second, Renewed: true, Wait: true}
}

func shared(r driver.Request, limit int) driver.Request {
	r.Shared, r.Limit = true, limit
	return r
}

func (b *bed) get(e *Engine, r driver.Request) driver.Hold {
	b.Helper()
	g, err := e.Acquire(b.Context(), r)
	if err != nil {
		b.Fatalf("acquire %s: %v", r.ID, err)
	}
	return r.Hold(g.Token)
}

func (b *bed) drop(e *Engine, h driver.Hold) {
	b.Helper()
	if err := e.Release(b.Context(), h); err != nil {
		b.Fatalf("release %s: %v", h.ID, err)
	}
}

// waiter is an Acquire that waits.
type waiter struct {
	r      driver.Request
	cancel context.CancelFunc
	done   bool
	grant  driver.Grant
	err    error
}

func (b *bed) wait(e *Engine, r driver.Request) *waiter {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	w := &waiter{r: r, cancel: cancel}
	joined := false
	w.r.Joined = func() { joined = true }
	go func() {
		w.grant, w.err = e.Acquire(ctx, w.r)
		w.done = true
	}()
	synctest.Wait()
	if !joined {
		b.Fatalf("%s does not wait: %v", r.ID, w.err)
	}
	return w
}

// stays checks for a while that the store keeps a ticket.
func (b *bed) stays(name, id string, d time.Duration) {
	b.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(time.Second)
		if !b.store.lasts(name, id).After(time.Now()) {
			b.Errorf("the ticket %s has ended, though its process lives", id)
			return
		}
	}
}

func (b *bed) granted(w *waiter, want bool) {
	b.Helper()
	synctest.Wait()
	if granted := w.done && w.err == nil; granted != want {
		b.Fatalf("%s granted: %v, want %v (error %v)", w.r.ID, granted, want, w.err)
	}
}

// over ends a session for the engine, as a watch for losses does.
func (b *bed) over(id string) {
	b.e.mu.Lock()
	defer b.e.unlock()
	for s := range b.e.sessions {
		if s.id == id {
			b.e.sessionOver(s)
		}
	}
}

// The release of a ticket whose put was not answered withdraws it: it cannot be created
// later, and its session takes no more tickets, even if others are on it.
func TestOrphan(t *testing.T) {
	for what, lost := range map[string]bool{"answer lost": true, "request late": false} {
		t.Run(what, func(t *testing.T) {
			inBubble(t, func(b *bed) {
				other := b.get(b.e, request("other", "o"))
				b.store.with(func(what, _ string, done bool) error {
					if what == "put" && done == lost {
						return errFakeLost
					}
					return nil
				})
				r := request("a", "1")
				if _, err := b.e.Acquire(b.Context(), r); !errors.Is(err, errFakeLost) || errors.Is(err, driver.ErrNoTicket) {
					t.Fatalf("acquire: %v", err)
				}
				b.e.mu.Lock()
				late := &Put{Ticket: b.e.tickets["1"].Ticket, Request: &r}
				b.e.mu.Unlock()
				b.store.with(nil)
				if err := b.e.Release(b.Context(), r.Hold(0)); lost != (err == nil) || err != nil && !errors.Is(err, driver.ErrLost) {
					t.Errorf("release: %v", err)
				}
				if _, err := b.store.doPut(late); !errors.Is(err, driver.ErrLost) {
					t.Errorf("the late put was answered with %v", err)
				}
				if n := b.store.queued("a"); n > 0 {
					t.Errorf("%d tickets are queued", n)
				}
				b.drop(b.e, b.get(b.e, r)) // the same ID again, in another session
				if b.store.opened != 2 {
					t.Errorf("%d sessions were opened, want 2", b.store.opened)
				}
				if err := b.e.Renew(b.Context(), other, 30*time.Second); err != nil {
					t.Errorf("the ticket beside it: %v", err)
				}
				b.drop(b.e, other)
			})
		})
	}
}

// A request that is repeated after an answer was lost queues one ticket.
func TestAskedAgain(t *testing.T) {
	for _, wait := range []bool{true, false} {
		inBubble(t, func(b *bed) {
			b.store.with(func(what, _ string, done bool) error {
				if what == "put" && done {
					return errFakeLost
				}
				return nil
			})
			r := request("a", "1")
			r.Wait = wait
			if _, err := b.e.Acquire(b.Context(), r); err == nil {
				t.Fatal("acquired")
			}
			b.store.with(nil)
			h := b.get(b.e, r)
			if again := b.get(b.e, r); again != h {
				t.Errorf("asked again: %v, want %v", again, h)
			}
			if n := b.store.queued("a"); n != 1 {
				t.Errorf("wait %v: %d tickets are queued, want 1", wait, n)
			}
			b.drop(b.e, h)
		})
	}
}

// A request is repeated if the store says that it cannot serve at the moment. Its ticket
// is withdrawn first, if it may exist. The error at the end has the store's answer.
func TestTemporary(t *testing.T) {
	inBubble(t, func(b *bed) {
		left := 5
		b.store.with(func(what, _ string, done bool) error {
			if (what == "put" || what == "withdraw") && left > 0 && done {
				left--
				return errFakeBusy
			}
			return nil
		})
		b.drop(b.e, b.get(b.e, request("a", "1")))
		if n := b.store.queued("a"); left > 0 || n > 0 {
			t.Errorf("%d refusals were not met, %d tickets are queued", left, n)
		}
		b.store.with(func(what, _ string, done bool) error {
			if what == "put" && !done {
				return Refused(errFakeBusy)
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		_, err := b.e.Acquire(ctx, request("a", "2"))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errFakeBusy) || !errors.Is(err, driver.ErrNoTicket) {
			t.Errorf("acquire: %v", err)
		}
	})
}

// A try is refused without a write, and reads again if a ticket was queued since.
func TestTry(t *testing.T) {
	inBubble(t, func(b *bed) {
		other := b.another()
		try := request("a", "1")
		try.Wait = false
		h := b.get(other, request("a", "o"))
		opened := b.store.opened
		if _, err := b.e.Acquire(b.Context(), try); !errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("try: %v", err)
		}
		if b.store.count("put") != 1 || b.store.opened != opened {
			t.Error("a refused try has written")
		}
		b.drop(other, h)
		overtaken := false
		b.store.with(func(what, _ string, done bool) error {
			if what == "put" && !done && !overtaken {
				overtaken = true
				h = b.get(other, request("a", "faster"))
			}
			return nil
		})
		if _, err := b.e.Acquire(b.Context(), try); !errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrNoTicket) {
			t.Errorf("try that was overtaken: %v", err)
		}
		b.drop(other, h)
		b.drop(b.e, b.get(b.e, try))
	})
}

// A release that was not answered can be repeated.
func TestUnansweredRelease(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.e, request("a", "1"))
		b.store.with(func(what, _ string, done bool) error {
			if what == "delete" && !done {
				return errFakeLost
			}
			return nil
		})
		if err := b.e.Release(b.Context(), h); !errors.Is(err, errFakeLost) {
			t.Errorf("release: %v", err)
		}
		if err := b.e.Renew(b.Context(), h, 30*time.Second); err == nil || errors.Is(err, driver.ErrLost) {
			t.Errorf("renewal of a ticket that is being released, and is there: %v", err)
		}
		b.store.with(nil)
		b.drop(b.e, h)
		if err := b.e.Release(b.Context(), h); !errors.Is(err, driver.ErrLost) {
			t.Errorf("a second release: %v", err)
		}
	})
}

// The withdrawal of a ticket whose put was not answered is not answered either: it is repeated, as one.
func TestUnansweredWithdrawal(t *testing.T) {
	inBubble(t, func(b *bed) {
		r := request("a", "1")
		b.store.with(func(what, _ string, done bool) error {
			if what == "put" && done || what == "withdraw" && !done {
				return errFakeLost
			}
			return nil
		})
		if _, err := b.e.Acquire(b.Context(), r); !errors.Is(err, errFakeLost) {
			t.Fatalf("acquire: %v", err)
		}
		if err := b.e.Release(b.Context(), r.Hold(0)); !errors.Is(err, errFakeLost) {
			t.Fatalf("release: %v", err)
		}
		b.store.with(nil)
		b.drop(b.e, r.Hold(0))
		if n := b.store.queued("a"); n > 0 {
			t.Errorf("%d tickets are queued", n)
		}
	})
}

// A ticket has gone with its session: its release says so, and the ticket is forgotten.
func TestReleaseAfterItsSession(t *testing.T) {
	inBubble(t, func(b *bed) {
		h := b.get(b.e, request("a", "1"))
		b.store.with(func(what, _ string, _ bool) error {
			if what == "delete" {
				return ErrSessionOver
			}
			return nil
		})
		if err := b.e.Release(b.Context(), h); !errors.Is(err, driver.ErrLost) || errors.Is(err, ErrSessionOver) {
			t.Errorf("%v, want ErrLost alone", err)
		}
		if n := len(b.e.tickets); n > 0 {
			t.Errorf("%d tickets are known", n)
		}
	})
}

// A put that is answered after its session has ended leaves nothing.
func TestSessionOverBeforeAnswer(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.store.unwatched = true // a loss watch would find out, too
		b.store.with(func(what, _ string, done bool) error {
			if what == "put" && done && b.store.count("end") == 0 {
				if err := b.store.End(b.Context(), "s1"); err != nil {
					t.Error(err)
				}
				b.over("s1")
			}
			return nil
		})
		h := b.get(b.e, request("a", "1"))
		if n := b.store.queued("a"); n != 1 {
			t.Errorf("%d tickets are queued after a grant", n)
		}
		if n := len(b.e.sessions); n != 1 {
			t.Errorf("the engine has %d sessions, want 1", n)
		}
		b.drop(b.e, h)
	})
}

// A try whose condition never holds, because the queue goes on changing, reads again with
// pauses, and has the end of its context as its error.
func TestTryPauses(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.store.with(func(what, _ string, done bool) error {
			if what == "put" && !done {
				return ErrChanged
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(b.Context(), 5*time.Second)
		defer cancel()
		try := request("a", "1")
		try.Wait = false
		if _, err := b.e.Acquire(ctx, try); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, driver.ErrNoTicket) {
			t.Errorf("try: %v", err)
		}
		if n := b.store.count("look"); n > 100 {
			t.Errorf("the queue was read %d times in 5 seconds", n)
		}
	})
}
