package sqlqueue

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// pass lets time pass, and what happens then.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// newWaiting makes an engine over a store in which every ticket is queued, and whose heartbeats are counted.
func newWaiting(t *testing.T, o Options) (e *Engine, s *fakeStore, heartbeats *atomic.Int64) {
	heartbeats = new(atomic.Int64)
	s = &fakeStore{
		take: func(until int64) (Answer, error) {
			if until == 0 {
				return Answer{Sent: time.Now(), Result: Late, Now: storeTime}, nil
			}
			if heartbeats.Load() == 0 {
				return Answer{Sent: time.Now(), Result: Unregistered}, nil
			}
			return Answer{Sent: time.Now(), Result: Queued, Due: time.Hour}, nil
		},
		heartbeat: func(int64) Heartbeat {
			return Heartbeat{Number: heartbeats.Add(1), Mine: Mine{Sent: time.Now()}}
		},
	}
	s.mine.Store(&[]Ticket{{ID: waits.ID, Token: 1}})
	o.Store = s
	if o.Liveness == 0 {
		o.Liveness = 4 * time.Second
	}
	return newEngine(t, o), s, heartbeats
}

// A process sends heartbeats as long as something waits, and a little longer. Then its row is removed, and what waits next registers it
// under another ID.
func TestLeavesWhenNothingWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, heartbeats := newWaiting(t, Options{})
		first := e.book.current()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		joined := 0
		r := waits
		r.Joined = func() { joined++ }
		ended := acquiring(ctx, e, r)
		pass(10*time.Second + time.Millisecond)
		if heartbeats.Load() != 11 || joined != 1 || len(s.gone()) > 0 {
			t.Errorf("in 10 s %d heartbeats, joined %d times, %d have left", heartbeats.Load(), joined, len(s.gone()))
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the wait has ended with %v", err)
		}
		pass(taskIdle - time.Second)
		if len(s.gone()) > 0 {
			t.Error("the process has left at once")
		}
		pass(3 * time.Second)
		if len(s.gone()) != 1 || s.gone()[0] != first || e.book.current() == first || Channel(e.book.current()) != Channel(first) {
			t.Errorf("%d have left, and %d is %d now", s.gone(), first, e.book.current())
		}
		heartbeats.Store(0)
		pass(time.Minute)
		if heartbeats.Load() > 0 {
			t.Errorf("%d heartbeats, and nothing waits", heartbeats.Load())
		}
		ctx, cancel = context.WithTimeout(t.Context(), 5*time.Second+time.Millisecond)
		defer cancel()
		if err := <-acquiring(ctx, e, waits); !errors.Is(err, context.DeadlineExceeded) || heartbeats.Load() != 6 {
			t.Errorf("the next wait, after %d heartbeats: %v", heartbeats.Load(), err)
		}
	})
}

// A ticket was queued, and its process has expired before the answer came.
func TestQueuedByAProcessThatHasExpired(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, _ := newWaiting(t, Options{})
		take := s.take
		s.take = func(until int64) (Answer, error) {
			a, err := take(until)
			if a.Result == Queued {
				e.book.expired(e.book.current())
			}
			return a, err
		}
		if err := <-acquiring(t.Context(), e, waits); !errors.Is(err, driver.ErrLost) {
			t.Errorf("the wait ended with %v", err)
		}
	})
}

// A grant of which the process is notified is returned with what is known of its lease: a provisional one to who renews it, or else a
// whole one.
func TestLeaseOfAGrant(t *testing.T) {
	const liveness = 4 * time.Second
	for what, c := range map[string]struct {
		change    func(*driver.Request)
		heartbeat int64         // that the grant names, of two
		after     time.Duration // the grant
		claim     time.Duration
		whole     bool
		left      time.Duration // of its lease, which a late request has made longer
	}{
		"provisional":           {heartbeat: 2, claim: liveness},
		"shorter than that":     {heartbeat: 2, change: func(r *driver.Request) { r.TTL = 2 * time.Second }},
		"the last heartbeat":    {heartbeat: 1, claim: liveness},
		"an unknown heartbeat":  {heartbeat: 9, whole: true},
		"fixed":                 {heartbeat: 2, change: func(r *driver.Request) { r.Renewed = false }, whole: true},
		"minimum hold":          {heartbeat: 2, change: func(r *driver.Request) { r.MinHold = time.Second }, whole: true},
		"little of it is left":  {heartbeat: 1, after: 950 * time.Millisecond, change: func(r *driver.Request) { r.TTL = 3 * time.Second }, whole: true},
		"shared, and not known": {heartbeat: 9, change: func(r *driver.Request) { r.Shared = true }, claim: liveness},
		"shared, and longer":    {heartbeat: 9, change: func(r *driver.Request) { r.Shared = true }, claim: liveness, left: time.Minute},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, s, heartbeats := newWaiting(t, Options{Liveness: liveness})
				renewals := 0
				s.renew = func(context.Context) error { renewals++; return nil }
				r := waits
				if c.change != nil {
					c.change(&r)
				}
				in := &Inbox{e}
				granted := make(chan driver.Grant, 1)
				go func() {
					g, err := e.Acquire(t.Context(), r)
					if err != nil {
						t.Error(err)
					}
					granted <- g
				}()
				begun := time.Now()
				synctest.Wait()
				e.book.setReceiving(true)
				synctest.Wait()
				pass(time.Second + time.Millisecond + c.after)
				if heartbeats.Load() != 2 {
					t.Fatalf("%d heartbeats", heartbeats.Load())
				}
				s.mine.Store(&[]Ticket{{ID: r.ID, Token: 7, Held: true, Left: max(liveness, c.left)}})
				at := time.Now()
				in.Text(GrantText(Grant{ID: r.ID, Token: 7, Heartbeat: c.heartbeat}))
				g := <-granted
				if g.Token != 7 || g.Claim != c.claim || renewals > 0 != c.whole {
					t.Errorf("%+v after %d renewals", g, renewals)
				}
				want := begun.Add(time.Duration(c.heartbeat-1) * time.Second)
				if c.heartbeat == 9 || c.whole {
					want = at
				}
				if d := g.Asked.Sub(want); d < 0 || d > 10*time.Millisecond {
					t.Errorf("the lease counts from %v after the time it should", d)
				}
			})
		})
	}
}

// The answer to a request of one's own contains the grants to other tickets of the process, and a queue that is due moves on.
func TestGrantsInAnswers(t *testing.T) {
	granted := []Grant{{ID: waits.ID, Token: 1, Heartbeat: 1}}
	for what, grant := range map[string]func(*Engine, *fakeStore){
		"take": func(e *Engine, s *fakeStore) {
			s.take = func(int64) (Answer, error) {
				return Answer{Sent: time.Now(), Result: Refused, Grants: granted}, nil
			}
			_, _ = e.Acquire(context.Background(), driver.Request{Name: "a", ID: "other", TTL: time.Minute})
		},
		"advance": func(e *Engine, s *fakeStore) {
			s.advance = func() []Grant { return granted }
			s.due = []Due{{In: -1}}
			(&Inbox{e}).Text(DueText(waits.Name))
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, s, _ := newWaiting(t, Options{})
				ended := acquiring(t.Context(), e, waits)
				grant(e, s)
				pass(time.Millisecond)
				select {
				case err := <-ended:
					if err != nil {
						t.Error(err)
					}
				default:
					t.Error("the grant is not delivered")
				}
			})
		})
	}
}

// The database's clock is asked for before the first request, after ten minutes, and when a request was late.
func TestReadsTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, _ := newWaiting(t, Options{})
		asked, begun := 0, time.Now()
		s.take = func(until int64) (Answer, error) {
			now := storeTime + time.Since(begun).Microseconds()
			if until == 0 || until < now {
				asked++
				return Answer{Sent: time.Now(), Result: Late, Now: now}, nil
			}
			if until != now+takeBound.Microseconds() {
				t.Errorf("until %v after now", time.Duration(until-now)*time.Microsecond)
			}
			return Answer{Sent: time.Now(), Result: Refused}, nil
		}
		for i, want := range []int{1, 1, 2, 3} {
			if _, err := e.Acquire(t.Context(), driver.Request{Name: "a", ID: "1", TTL: time.Minute}); !errors.Is(err, driver.ErrNotAcquired) || asked != want {
				t.Errorf("%d: asked %d times, %v", i, asked, err)
			}
			switch i {
			case 0:
				pass(readingAge)
			case 1:
				pass(time.Second)
			case 2:
				begun = begun.Add(-time.Hour) // the clock is set
			}
		}
		s.take = func(int64) (Answer, error) {
			time.Sleep(time.Millisecond)
			return Answer{Sent: time.Now(), Result: Late, Now: storeTime}, nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := <-acquiring(ctx, e, waits); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("each request is late: %v", err)
		}
	})
}

// A token that no ticket has is not broken. A lease that is over is not shortened.
func TestBreakAndShorten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, _ := newWaiting(t, Options{})
		for token, want := range map[uint64]error{0: driver.ErrLost, 1: nil, math.MaxInt64: nil, math.MaxInt64 + 1: driver.ErrLost} {
			if err := e.Break(t.Context(), "a", token); !errors.Is(err, want) {
				t.Errorf("token %d: %v", token, err)
			}
		}
		if s.broken != 2 {
			t.Errorf("%d requests", s.broken)
		}
		var held bool
		var failed error
		s.shortened = func() (bool, error) { return held, failed }
		if err := e.Shorten(t.Context(), waits.Hold(1), 0); !errors.Is(err, driver.ErrLost) {
			t.Error(err)
		}
		if held = true; e.Shorten(t.Context(), waits.Hold(1), 0) != nil {
			t.Error("a lease that goes on is not shortened")
		}
		held, failed = false, errBroken
		if err := e.Shorten(t.Context(), waits.Hold(1), 0); !errors.Is(err, errBroken) || errors.Is(err, driver.ErrLost) {
			t.Error(err)
		}
	})
}
