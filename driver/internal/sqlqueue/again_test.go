package sqlqueue

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// The tests of this file ask for one ticket several times. An answer to one request says nothing about the others.

// newAgain makes an engine over a store that answers requests for tickets one after the other: each request that is in time
// takes the next of the answers.
func newAgain(t *testing.T, answers ...func() (Answer, error)) (*Engine, *fakeStore) {
	n := int64(0)
	s := &fakeStore{
		take: func(until int64) (Answer, error) {
			if until == 0 {
				return Answer{Sent: time.Now(), Result: Late, Now: storeTime}, nil
			}
			next := answers[0]
			answers = answers[1:]
			return next()
		},
		heartbeat: func(int64) Heartbeat {
			n++
			return Heartbeat{Number: n, Mine: Mine{Sent: time.Now()}}
		},
	}
	return newEngine(t, Options{Store: s, Liveness: time.Second}), s
}

// after returns an answer after a while.
func after(d time.Duration, a Answer, err error) func() (Answer, error) {
	return func() (Answer, error) {
		a.Sent = time.Now()
		time.Sleep(d)
		return a, err
	}
}

var waits = driver.Request{Name: "a", ID: "1", TTL: time.Minute, Wait: true, Renewed: true}

// acquiring calls Acquire, and returns its error when it has returned.
func acquiring(ctx context.Context, e *Engine, r driver.Request) <-chan error {
	ended := make(chan error, 1)
	go func() {
		_, err := e.Acquire(ctx, r)
		ended <- err
	}()
	synctest.Wait()
	return ended
}

// Two ask for one ticket at once, and one of them is answered, or fails: while the request of the other is under way, or was
// not answered and may arrive, a release is not confirmed. Afterwards it is.
func TestReleaseWhileAnotherAsks(t *testing.T) {
	const second = time.Second
	for name, answer := range map[string]func() (Answer, error){
		"granted": after(0, Answer{Result: Granted, Token: 1}, nil),
		"refused": after(0, Answer{Result: Refused}, nil),
		"undone":  after(0, Answer{}, errUnsent),
		"broken":  after(0, Answer{}, errBroken),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, _ := newAgain(t, after(5*second, Answer{}, errBroken), answer)
				first := acquiring(t.Context(), e, waits)
				if err := <-acquiring(t.Context(), e, waits); saysGone(err) || errors.Is(err, driver.ErrNoTicket) {
					t.Errorf("while another request is under way: %v", err)
				}
				for range 4 {
					if err := e.Release(t.Context(), waits.Hold(0)); !errors.Is(err, driver.ErrUnavailable) {
						t.Errorf("a release while a request is under way: %v", err)
					}
					time.Sleep(second)
				}
				if err := <-first; !errors.Is(err, errBroken) {
					t.Errorf("the first: %v", err)
				}
				if err := e.Release(t.Context(), waits.Hold(0)); !errors.Is(err, driver.ErrLost) { // takeBound is over
					t.Errorf("the release afterwards: %v", err)
				}
				if len(e.book.requests) > 0 || len(e.book.held) > 0 {
					t.Error("the book has the ticket after its release")
				}
			})
		})
	}
}

// The answer to a release says nothing about a request for the ticket that began after it was sent.
func TestReleaseIsAnsweredWhileAnotherAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := newAgain(t, after(0, Answer{}, errBroken), after(2*time.Second, Answer{}, errBroken))
		_, _ = e.Acquire(t.Context(), waits)
		time.Sleep(takeBound + time.Second)
		s.removing = time.Second
		var releasing sync.WaitGroup
		releasing.Go(func() {
			if err := e.Release(t.Context(), waits.Hold(0)); !errors.Is(err, driver.ErrLost) {
				t.Errorf("the release of a ticket that is not there: %v", err)
			}
		})
		synctest.Wait()
		ended := acquiring(t.Context(), e, waits)
		releasing.Wait()
		s.removing = 0
		for range 3 { // while it asks, and while its request may arrive
			if err := e.Release(t.Context(), waits.Hold(0)); !errors.Is(err, driver.ErrUnavailable) {
				t.Errorf("a release while another asks: %v", err)
			}
			time.Sleep(500 * time.Millisecond)
		}
		if err := <-ended; !errors.Is(err, errBroken) {
			t.Errorf("acquire: %v", err)
		}
	})
}

// A request was not answered, or its caller has left, and the next one for the ticket was not sent: there may be a ticket.
func TestNoTicketAfterAnEarlierRequest(t *testing.T) {
	for name, earlier := range map[string]func() (Answer, error){
		"unanswered": after(0, Answer{}, errBroken),
		"queued":     after(0, Answer{Result: Queued, Due: time.Hour}, nil),
		"granted":    after(0, Answer{Result: Granted, Token: 1}, nil),
	} {
		for _, later := range []time.Duration{0, takeBound + time.Second} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					unsent := after(0, Answer{}, errUnsent)
					e, s := newAgain(t, earlier, unsent, unsent)
					s.mine.Store(&[]Ticket{{ID: waits.ID, Token: 1}})
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					_, _ = e.Acquire(ctx, waits)
					time.Sleep(later)
					if _, err := e.Acquire(t.Context(), waits); !errors.Is(err, errUnsent) || errors.Is(err, driver.ErrNoTicket) {
						t.Errorf("%v later: %v", later, err)
					}
					time.Sleep(takeBound)
					_ = e.Release(t.Context(), waits.Hold(0))
					if _, err := e.Acquire(t.Context(), waits); !errors.Is(err, driver.ErrNoTicket) {
						t.Errorf("after its release: %v", err)
					}
				})
			})
		}
	}
}

// A wait ends when the ticket is asked for again: its grant is told to the later caller alone.
func TestWaitWhoseTicketIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queued := after(0, Answer{Result: Queued, Due: time.Hour}, nil)
		e, s := newAgain(t, queued, queued)
		s.mine.Store(&[]Ticket{{ID: waits.ID, Token: 1}})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		first, second := acquiring(ctx, e, waits), acquiring(ctx, e, waits)
		s.mine.Store(&[]Ticket{{ID: waits.ID, Token: 1, Held: true, Left: time.Minute}})
		if err := <-second; err != nil {
			t.Errorf("the second, after %v: %v", second, err)
		}
		if err := <-first; !errors.Is(err, errAskedAgain) || errors.Is(err, driver.ErrNoTicket) {
			t.Errorf("the first: %v", err)
		}
	})
}

// A ticket was asked for without an answer, granted or broken, and asked for again. Notices of the earlier one, which are late,
// say nothing about the one that waits.
func TestLateNoticesOfAnEarlierTicket(t *testing.T) {
	for name, notice := range map[string]string{
		"granted": GrantText(Grant{ID: waits.ID, Token: 1, Heartbeat: 1}),
		"lost":    LostText(waits.Hold(1)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, s := newAgain(t, after(0, Answer{}, errBroken), after(time.Second, Answer{Result: Queued, Due: time.Hour}, nil))
				s.mine.Store(&[]Ticket{{ID: waits.ID, Token: 2}})
				_, _ = e.Acquire(t.Context(), waits)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				ended := acquiring(ctx, e, waits)
				in := &Inbox{e}
				in.Text(notice) // before it is known to be queued
				time.Sleep(2 * time.Second)
				in.Text(notice)
				time.Sleep(2 * time.Second)
				select {
				case err := <-ended:
					t.Fatalf("the wait has ended: %v", err)
				default:
				}
				s.mine.Store(nil)
				if in.Text(notice); !errors.Is(<-ended, driver.ErrLost) || ctx.Err() != nil {
					t.Error("a loss is not noticed")
				}
			})
		})
	}
}

// A ticket is held that was asked for again after an earlier one with its ID was broken. The notice of that, which is late,
// does not end its lease.
func TestLateNoticeOfALossBeforeTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := newAgain(t, after(0, Answer{}, errBroken), after(0, Answer{Result: Granted, Token: 2}, nil))
		var lost []driver.Hold
		e.NotifyLoss(func(h driver.Hold, _ error) { lost = append(lost, h) })
		_, _ = e.Acquire(t.Context(), waits)
		if _, err := e.Acquire(t.Context(), waits); err != nil {
			t.Fatal(err)
		}
		in := &Inbox{e}
		if in.Text(LostText(waits.Hold(1))); len(lost) > 0 {
			t.Errorf("%v is lost, and token 2 is held", lost)
		}
		if in.Text(LostText(waits.Hold(2))); len(lost) != 1 {
			t.Errorf("%v are lost", lost)
		}
	})
}

// What was read of an earlier ticket, before the present one was known to be queued, is no grant of that.
func TestReadsAnEarlierTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook(time.Second)
		b.note(waits.ID, 0, time.Now())
		earlier := Mine{Sent: time.Now(), Tickets: []Ticket{{ID: waits.ID, Token: 1, Held: true, Left: time.Minute}}}
		w := b.add(waits)
		b.compare(earlier, b.process, true)
		time.Sleep(time.Second)
		b.queued(w, time.Now(), time.Hour)
		b.compare(earlier, b.process, true)
		select {
		case o := <-w.outcome:
			t.Errorf("token %d was granted (%v)", o.token, o.err)
		default:
		}
		time.Sleep(time.Second)
		b.compare(Mine{Sent: time.Now(), Tickets: []Ticket{{ID: waits.ID, Token: 2, Held: true, Left: time.Minute}}}, b.process, true)
		if o := <-w.outcome; o.token != 2 {
			t.Errorf("token %d was granted (%v)", o.token, o.err)
		}
	})
}

// A ticket is asked for again. It is queued and granted before the answer to its request arrives: the notice comes first.
func TestNoticeBeforeTheAnswerOfOneAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := newAgain(t, after(0, Answer{}, errBroken), after(100*time.Millisecond, Answer{Result: Queued, Due: time.Hour}, nil))
		e.opts.Liveness, e.book.liveness = 40*time.Second, 40*time.Second
		held := []Ticket{{ID: waits.ID, Token: 2, Held: true, Left: time.Minute}}
		_, _ = e.Acquire(t.Context(), waits)
		e.attend()
		in := &Inbox{e}
		in.Ready()
		_ = e.register(t.Context(), e.book.current(), time.Now())
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		ended := acquiring(ctx, e, waits)
		time.Sleep(50 * time.Millisecond)
		s.mine.Store(&held)
		in.Text(GrantText(Grant{ID: waits.ID, Token: 2, Heartbeat: 1}))
		if err := <-ended; err != nil {
			t.Errorf("the grant is not noticed: %v", err)
		}
	})
}

// A release was executed before a request that takes the ticket anew, and is answered after that: the ticket is still in the book.
func TestReleaseAnsweredAfterAGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := newAgain(t, after(0, Answer{Result: Granted, Token: 1}, nil), after(0, Answer{Result: Granted, Token: 2}, nil), after(0, Answer{}, errUnsent))
		lost := 0
		e.NotifyLoss(func(h driver.Hold, _ error) { lost++ })
		_, _ = e.Acquire(t.Context(), waits)
		s.removing = time.Second
		done := make(chan error, 1)
		go func() { done <- e.Release(t.Context(), waits.Hold(1)) }()
		synctest.Wait()
		if _, err := e.Acquire(t.Context(), waits); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, driver.ErrLost) { // what the fake answers
			t.Fatal(err)
		}
		(&Inbox{e}).Text(LostText(waits.Hold(2)))
		if lost != 1 {
			t.Error("the loss of the ticket that is held is not told")
		}
		if _, err := e.Acquire(t.Context(), waits); errors.Is(err, driver.ErrNoTicket) {
			t.Errorf("no ticket, and token 2 is held: %v", err)
		}
	})
}

type passingStore struct{ *fakeStore }

func (s passingStore) Class(err error) Class {
	if errors.Is(err, errBroken) {
		return Passing
	}
	return s.fakeStore.Class(err)
}

// One Acquire: its first request is not answered, the second is refused, then the first arrives and takes the ticket, and then the
// answer to the second arrives.
func TestRefusedBeforeALateRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := newAgain(t, after(0, Answer{}, errBroken), after(4*time.Second, Answer{Result: Refused}, nil))
		e.store = passingStore{s}
		if _, err := e.Acquire(t.Context(), driver.Request{Name: "a", ID: "1", TTL: time.Minute}); saysGone(err) || errors.Is(err, driver.ErrNoTicket) {
			t.Errorf("the first request may have taken the ticket: %v", err)
		} else if !errors.Is(err, driver.ErrUnavailable) {
			t.Error(err)
		}
	})
}

// One Acquire: its last request was refused after none of the others could arrive any more.
func TestRefusedAfterALateRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := newAgain(t, after(0, Answer{}, errBroken), after(3*time.Second, Answer{}, errBroken), after(0, Answer{Result: Refused}, nil))
		e.store = passingStore{s}
		if _, err := e.Acquire(t.Context(), driver.Request{Name: "a", ID: "1", TTL: time.Minute}); !errors.Is(err, driver.ErrNotAcquired) {
			t.Error(err)
		}
	})
}

// One Acquire: its first request was not answered, the second one queued the ticket, and all tickets of the process are read,
// until somebody has removed it. If the ticket was seen last while the first request could still arrive, that may have taken it
// since. Otherwise it is lost.
func TestLostBesideALateRequest(t *testing.T) {
	for removed, want := range map[time.Duration]error{takeBound: driver.ErrUnavailable, takeBound + time.Second: driver.ErrLost} {
		synctest.Test(t, func(t *testing.T) {
			e, s := newAgain(t, after(0, Answer{}, errBroken), after(0, Answer{Result: Queued, Due: time.Hour}, nil))
			e.store = passingStore{s}
			s.mine.Store(&[]Ticket{{ID: waits.ID, Token: 1}})
			ended := acquiring(t.Context(), e, waits)
			time.Sleep(removed)
			s.mine.Store(nil)
			s.reading.Store(int64(time.Second)) // the answer comes when no request may arrive any more
			if err := <-ended; !errors.Is(err, want) {
				t.Errorf("removed after %v: %v, want %v", removed, err, want)
			}
			s.reading.Store(0)
			time.Sleep(2 * time.Second) // it may read again
		})
	}
}

// One Acquire: its first request was not answered, and the answer to the second, which queued the ticket, was late. The ticket is
// broken: the first request may have taken it anew before that answer came.
func TestLostBesideALateAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := newAgain(t, after(0, Answer{}, errBroken), after(takeBound+time.Second, Answer{Result: Queued, Due: time.Hour}, nil))
		e.store = passingStore{s}
		ended := acquiring(t.Context(), e, waits)
		time.Sleep(takeBound + time.Second + 100*time.Millisecond)
		(&Inbox{e}).Text(LostText(waits.Hold(1)))
		if err := <-ended; !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("the first request may have taken the ticket: %v", err)
		}
	})
}

// One Acquire: its first request was not answered, but has queued a ticket that was granted and broken, and the second one has
// queued another. Late notices of the first ticket say nothing about the second.
func TestLateNoticeOfAnUnansweredRequest(t *testing.T) {
	for _, notice := range []string{GrantText(Grant{ID: waits.ID, Token: 1, Heartbeat: 1}), LostText(waits.Hold(1))} {
		synctest.Test(t, func(t *testing.T) {
			e, s := newAgain(t, after(0, Answer{}, errBroken), after(0, Answer{Result: Queued, Due: time.Hour}, nil))
			e.store = passingStore{s}
			s.mine.Store(&[]Ticket{{ID: waits.ID, Token: 2}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			ended := acquiring(ctx, e, waits)
			time.Sleep(takeBound + time.Second)
			(&Inbox{e}).Text(notice)
			time.Sleep(time.Second)
			select {
			case err := <-ended:
				t.Fatalf("%q: the wait has ended: %v", notice, err)
			default:
			}
			if cancel(); !errors.Is(<-ended, context.Canceled) {
				t.Errorf("%q: the wait has ended before its context", notice)
			}
		})
	}
}

// Two ask for one ticket at once. The first has queued it, and the request of the second was not sent: there is a ticket.
func TestNoTicketWhileAnotherIsQueued(t *testing.T) {
	for _, second := range []time.Duration{time.Second, 3 * time.Second} { // before the answer to the first, and after it
		synctest.Test(t, func(t *testing.T) {
			unsent := after(0, Answer{}, errUnsent)
			e, _ := newAgain(t, after(2*time.Second, Answer{Result: Queued, Due: time.Hour}, nil), after(second, Answer{}, errUnsent), unsent, unsent)
			first := acquiring(t.Context(), e, waits)
			if err := <-acquiring(t.Context(), e, waits); !errors.Is(err, errUnsent) || errors.Is(err, driver.ErrNoTicket) {
				t.Errorf("the second, after %v: %v", second, err)
			}
			if err := <-first; !errors.Is(err, errAskedAgain) {
				t.Errorf("the first: %v", err)
			}
			if _, err := e.Acquire(t.Context(), waits); errors.Is(err, driver.ErrNoTicket) {
				t.Errorf("a third, after %v: %v", second, err)
			}
			_ = e.Release(t.Context(), waits.Hold(0))
			if _, err := e.Acquire(t.Context(), waits); !errors.Is(err, driver.ErrNoTicket) {
				t.Errorf("after its release: %v", err)
			}
		})
	}
}

// A release between the answer that grants a ticket and the return of Acquire is not confirmed before the book has the ticket:
// otherwise it would keep what nobody releases any more.
func TestHeldBeforeItIsAskedForNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := newAgain(t, after(0, Answer{Result: Granted, Token: 1}, nil))
		w := e.book.add(waits)
		if g, _, err := e.take(t.Context(), waits, w); g.Token != 1 || err != nil {
			t.Fatal(g, err)
		}
		if held, _ := e.book.known(waits.ID); held != 1 {
			t.Error("the ticket is held, and the book has not got it")
		}
	})
}

// A ticket is queued and broken before the answer to its request arrives: the notice comes first.
func TestLossBeforeTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := newAgain(t, after(100*time.Millisecond, Answer{Result: Queued, Due: time.Hour}, nil))
		e.opts.Liveness, e.book.liveness = 40*time.Second, 40*time.Second
		e.attend()
		in := &Inbox{e}
		in.Ready()
		_ = e.register(t.Context(), e.book.current(), time.Now())
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		ended := acquiring(ctx, e, waits)
		time.Sleep(50 * time.Millisecond)
		in.Text(LostText(waits.Hold(1)))
		if err := <-ended; !errors.Is(err, driver.ErrLost) {
			t.Errorf("the loss is not noticed: %v", err)
		}
	})
}
