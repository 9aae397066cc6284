package sqlqueue

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A fakeStore has no tickets. Its functions answer, or else their zero value is the answer.
type fakeStore struct {
	take       func(until int64) (Answer, error)
	connecting time.Duration // before a ticket is requested
	heartbeat  func(process int64) Heartbeat
	hanging    int       // heartbeats that are not answered
	cut        int       // heartbeats whose context has ended
	sent       time.Time // when Remove was called last
	mine       atomic.Pointer[[]Ticket]
	removing   time.Duration // how long Remove takes
	reading    atomic.Int64  // how long Mine takes
	renew      func(context.Context) error
	left       atomic.Pointer[[]int64] // processes that have left
	broken     int                     // how often Break was called
	shortened  func() (bool, error)
	advance    func() []Grant
	due        []Due
	sweep      func() (busy int64, err error)
	turn       func(life time.Duration, done bool) (time.Duration, error)
	tables     func() Tables
	created    int
	creating   error // of Create
	looking    error // of Tables
}

func (s *fakeStore) Take(_ context.Context, _ int64, _ driver.Request, until func() int64) (Answer, error) {
	time.Sleep(s.connecting)
	return s.take(until())
}

func (s *fakeStore) Remove(context.Context, int64, driver.Hold) (Removal, error) {
	s.sent = time.Now()
	time.Sleep(s.removing)
	return Removal{}, nil
}

func (s *fakeStore) Heartbeat(ctx context.Context, process int64, _ time.Duration, _ bool) (Heartbeat, error) {
	if s.cut == s.hanging {
		return s.heartbeat(process), nil
	}
	<-ctx.Done()
	s.cut++
	return Heartbeat{}, ctx.Err()
}

func (s *fakeStore) Due(_ context.Context, _ int64, names []string) ([]Due, error) {
	if s.due != nil {
		return s.due, nil
	}
	return slices.Repeat([]Due{{In: time.Hour}}, len(names)), nil
}

func (s *fakeStore) Mine(context.Context, int64, bool) (Mine, error) {
	time.Sleep(time.Nanosecond)
	m := Mine{Sent: time.Now()}
	if all := s.mine.Load(); all != nil {
		m.Tickets = *all
	}
	time.Sleep(time.Duration(s.reading.Load()))
	return m, nil
}

func (s *fakeStore) Break(context.Context, int64, string, uint64) (Removal, error) {
	s.broken++
	return Removal{Found: true}, nil
}

func (s *fakeStore) Renew(ctx context.Context, _ []driver.Renewal) ([]int, error) {
	if s.renew == nil {
		return nil, nil
	}
	return []int{0}, s.renew(ctx)
}

func (s *fakeStore) Shorten(context.Context, driver.Hold, time.Duration) (bool, error) {
	return s.shortened()
}

func (s *fakeStore) Leave(_ context.Context, process int64) error {
	left := append(s.gone(), process)
	s.left.Store(&left)
	return nil
}

// gone are the processes that have left.
func (s *fakeStore) gone() []int64 {
	if all := s.left.Load(); all != nil {
		return slices.Clone(*all)
	}
	return nil
}

func (s *fakeStore) Advance(context.Context, int64, string) ([]Grant, error) {
	return s.advance(), nil
}

func (s *fakeStore) Sweep(context.Context, string) (string, int64, error) {
	if s.sweep == nil {
		return "", 0, nil
	}
	busy, err := s.sweep()
	return "", busy, err
}

func (s *fakeStore) SweepTurn(_ context.Context, life time.Duration, done bool) (time.Duration, error) {
	if s.turn == nil {
		return time.Minute, nil
	}
	return s.turn(life, done)
}

func (*fakeStore) Queue(context.Context, string) ([]driver.Ticket, error) { return nil, nil }

func (*fakeStore) Names(context.Context) ([]string, error) { return nil, nil }

func (s *fakeStore) Tables(context.Context) (Tables, error) { return s.tables(), s.looking }

func (s *fakeStore) Create(context.Context) error {
	s.created++
	return s.creating
}

func (*fakeStore) Class(err error) Class {
	switch {
	case errors.Is(err, errDeadlock):
		return Undone | Passing
	case errors.Is(err, errUnsent):
		return Undone
	}
	return 0
}

// newEngine makes an engine that is closed at the end of the test, when its books have to agree, and nothing waits any more.
func newEngine(t *testing.T, o Options) *Engine {
	e := New(o)
	t.Cleanup(func() {
		_ = e.Close()
		synctest.Wait()
		books(t, &e.book)
	})
	return e
}

// books checks what an engine knows of its tickets after it was closed.
func books(t *testing.T, b *book) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, w := range b.byID {
		t.Errorf("ticket %s of %s waits after Close", id, w.name)
	}
	for name, n := range b.byName {
		t.Errorf("%d wait for %s after Close", n.waiters, name)
	}
	for id, r := range b.requests {
		if r.calls != 0 || r.until.IsZero() {
			t.Errorf("ticket %s is asked for by %d calls, until %v", id, r.calls, r.until)
		}
	}
	if b.registered || b.heartbeats != ([8]heartbeat{}) {
		t.Error("the process lives after Close")
	}
}

// The clock of the store stands still at this time.
const storeTime = 1_000_000

var (
	errBroken   = errors.New("the connection broke")
	errDeadlock = errors.New("a deadlock")
	errUnsent   = errors.New("no connection")
)

// While a request for a ticket may still arrive, its release is not confirmed. Afterwards it is.
func TestReleaseOfATicketThatMayArrive(t *testing.T) {
	for _, inOrder := range []bool{false, true} { // a store in order never says that a request is late
		synctest.Test(t, func(t *testing.T) {
			s := &fakeStore{take: func(until int64) (Answer, error) {
				if until == 0 && !inOrder {
					return Answer{Sent: time.Now(), Result: Late, Now: storeTime}, nil
				}
				if until > storeTime+takeBound.Microseconds() {
					t.Errorf("a request may take a ticket until %d", until)
				}
				return Answer{Sent: time.Now()}, errBroken
			}}
			e := newEngine(t, Options{Store: s, Liveness: time.Second})
			r := driver.Request{Name: "a", ID: "1", TTL: time.Minute}
			begun := time.Now()
			if _, err := e.Acquire(t.Context(), r); !errors.Is(err, errBroken) || errors.Is(err, driver.ErrNoTicket) {
				t.Errorf("acquire: %v", err)
			}
			err := e.Release(t.Context(), r.Hold(0))
			for ; errors.Is(err, driver.ErrUnavailable); err = e.Release(t.Context(), r.Hold(0)) {
				if s.sent.IsZero() {
					t.Error("the ticket was not removed")
				}
				time.Sleep(10 * time.Millisecond)
			}
			took := time.Since(begun)
			if !errors.Is(err, driver.ErrLost) || !inOrder && took <= takeBound || took > takeBound+time.Second {
				t.Errorf("in order %v: after %v the release is %v", inOrder, took, err)
			}
		})
	}
}

// A request for a ticket is under way and not sent yet, since it waits for a connection or is between two tries: a release says
// that the ticket may still come to be, and a later one removes it.
func TestReleaseBeforeTheRequestIsSent(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &fakeStore{connecting: 100 * time.Millisecond}
			s.take = func(until int64) (Answer, error) {
				switch {
				case fails:
					fails = false
					return Answer{}, errDeadlock
				case until == 0:
					return Answer{Sent: time.Now(), Result: Late, Now: storeTime}, nil
				}
				return Answer{Sent: time.Now(), Result: Granted, Token: 1}, nil
			}
			e := newEngine(t, Options{Store: s, Liveness: time.Second})
			r := driver.Request{Name: "a", ID: "1", TTL: time.Minute}
			acquired := make(chan error, 1)
			go func() {
				_, err := e.Acquire(t.Context(), r)
				acquired <- err
			}()
			for range 10 { // before the first try and after it
				time.Sleep(17 * time.Millisecond)
				if err := e.Release(t.Context(), r.Hold(0)); !errors.Is(err, driver.ErrUnavailable) {
					t.Errorf("the release of a ticket that is asked for: %v", err)
				}
			}
			if err := <-acquired; err != nil {
				t.Errorf("acquire: %v", err)
			}
			if err := e.Release(t.Context(), r.Hold(1)); !errors.Is(err, driver.ErrLost) { // the store has no tickets
				t.Errorf("the release afterwards: %v", err)
			}
		})
	}
}

// What a request leaves in the book does not pile up if nobody releases its ticket.
func TestForgetsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook(time.Second)
		for i := range 1000 {
			id := string(rune('a' + i))
			b.note(id, 0, time.Now().Add(takeBound))
			time.Sleep(takeBound)
		}
		if n := len(b.requests); n > 100 {
			t.Errorf("%d requests are remembered", n)
		}
	})
}

// The first try to register a process was not answered, and the process has expired before the next one: the waits
// of tickets that were queued in between end with ErrLost.
func TestExpiredBeforeItWasRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var first int64
		s := &fakeStore{heartbeat: func(process int64) Heartbeat {
			if process == first {
				return Heartbeat{}
			}
			return Heartbeat{Number: 1}
		}}
		e := newEngine(t, Options{Store: s, Liveness: time.Minute})
		first = e.book.current()
		w := e.book.add(driver.Request{Name: "a", ID: "queued", TTL: time.Minute})
		e.book.queued(w, time.Now(), time.Minute)
		e.book.asked(w.id, time.Time{})
		if err := e.register(t.Context(), first, time.Now()); err != nil {
			t.Fatal(err)
		}
		select {
		case o := <-w.outcome:
			if !errors.Is(o.err, driver.ErrLost) {
				t.Errorf("the wait ended with %v", o.err)
			}
		default:
			t.Error("the wait goes on")
		}
	})
}

// A registration that hangs gives up its connection as often as a heartbeat does, and is sent again.
func TestRegistrationThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{hanging: 5, heartbeat: func(int64) Heartbeat { return Heartbeat{Number: 1} }}
		e := newEngine(t, Options{Store: s, Liveness: 4 * time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := e.register(ctx, e.book.current(), time.Now()); err != nil || s.cut != 5 {
			t.Errorf("after %d heartbeats without an answer: %v", s.cut, err)
		}
	})
}

// A panic in the user's code under a request for a ticket leaves nobody who waits.
func TestPanicInARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{take: func(int64) (Answer, error) { panic("the user's") }}
		e := newEngine(t, Options{Store: s, Liveness: time.Second})
		panics(t, func() {
			_, _ = e.Acquire(t.Context(), driver.Request{Name: "a", ID: "1", TTL: time.Minute, Wait: true})
		})
		if len(e.book.byID) > 0 || len(e.book.requests) > 0 {
			t.Errorf("%d tickets wait and %d are asked for", len(e.book.byID), len(e.book.requests))
		}
	})
}

// A ticket was queued and granted under an ID that the process has given up since, and both answers are late. Heartbeats of
// the present ID, which are numbered alike, say nothing about its lease, which is over.
func TestGrantUnderAFormerID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const liveness = 4 * time.Second
		s := &fakeStore{heartbeat: func(int64) Heartbeat { return Heartbeat{Number: 1, Mine: Mine{Sent: time.Now()}} }}
		e := newEngine(t, Options{Store: s, Liveness: liveness})
		s.take = func(until int64) (Answer, error) {
			a := Answer{Sent: time.Now(), Result: Late, Now: storeTime}
			if until == 0 {
				return a, nil
			}
			former := e.book.current()
			_, _, _ = e.heartbeat(t.Context(), former, true)
			time.Sleep(liveness + time.Second)
			e.book.expired(former)
			_, _, _ = e.heartbeat(t.Context(), e.book.current(), true)
			e.deliver([]Grant{{ID: "1", Token: 1, Heartbeat: 1}})
			a.Result, a.Due = Queued, time.Hour
			return a, nil
		}
		r := driver.Request{Name: "a", ID: "1", TTL: time.Minute, Wait: true, Renewed: true}
		if g, err := e.Acquire(t.Context(), r); !errors.Is(err, driver.ErrLost) {
			t.Errorf("granted from %v ago: %v", time.Since(g.Asked), err)
		}
	})
}

// A waiter whose ticket was removed by somebody else learns of it soon, although no notices arrive.
func TestLearnsOfALossWithoutNotices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := int64(0)
		s := &fakeStore{
			take: func(until int64) (Answer, error) {
				if until == 0 {
					return Answer{Sent: time.Now(), Result: Late, Now: storeTime}, nil
				}
				return Answer{Sent: time.Now(), Result: Queued, Due: time.Hour}, nil
			},
			heartbeat: func(int64) Heartbeat {
				n++
				return Heartbeat{Number: n, Mine: Mine{Sent: time.Now()}}
			},
		}
		e := newEngine(t, Options{Store: s, Liveness: 4 * time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		_, err := e.Acquire(ctx, driver.Request{Name: "a", ID: "1", TTL: time.Minute, Wait: true})
		if took := time.Since(begun); !errors.Is(err, driver.ErrLost) || took > 2*e.heartbeatEvery() {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// The store does not answer the renewal by which a fixed lease begins: the wait goes on, and the renewal is repeated.
func TestUnansweredRenewalOfAGrant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := newAgain(t, after(0, Answer{Result: Queued, Due: time.Hour}, nil))
		renewals := 0
		s.renew = func(context.Context) error {
			if renewals++; renewals < 3 {
				return os.ErrDeadlineExceeded
			}
			return nil
		}
		r := waits
		r.Renewed = false
		ended := acquiring(t.Context(), e, r)
		s.mine.Store(&[]Ticket{{ID: r.ID, Token: 1, Held: true, Left: time.Second}})
		if err := <-ended; err != nil || renewals != 3 {
			t.Errorf("%d renewals, %v; want a grant by the third", renewals, err)
		}
	})
}

// The context of a wait ends while the lease of its grant is renewed: the error is that end, and says nothing about the store, whose
// client has interrupted the request.
func TestWaitThatEndsDuringTheRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := newAgain(t, after(0, Answer{Result: Queued, Due: time.Hour}, nil))
		s.renew = func(ctx context.Context) error {
			<-ctx.Done()
			return os.ErrDeadlineExceeded
		}
		ctx, cancel := context.WithCancel(t.Context())
		r := waits
		r.Renewed = false
		ended := acquiring(ctx, e, r)
		s.mine.Store(&[]Ticket{{ID: r.ID, Token: 1, Held: true, Left: time.Second}})
		time.Sleep(2 * time.Second)
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("the error is %v", err)
		}
	})
}

// The first heartbeat of a process was executed and not answered. Tickets were queued, and then the row of the process expired and was
// removed, before the next heartbeat, which makes it anew: the waits of those tickets end with ErrLost soon.
func TestRowIsRemovedBeforeItIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := int64(0)
		s := &fakeStore{heartbeat: func(int64) Heartbeat {
			n++
			return Heartbeat{Number: n, Mine: Mine{Sent: time.Now()}}
		}}
		s.take = func(until int64) (Answer, error) {
			if until == 0 {
				return Answer{Sent: time.Now(), Result: Late, Now: storeTime}, nil
			}
			return Answer{Sent: time.Now(), Result: Queued, Due: time.Hour}, nil
		}
		e := newEngine(t, Options{Store: s, Liveness: 4 * time.Second})
		e.book.receiving = true
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		if err := <-acquiring(ctx, e, waits); !errors.Is(err, driver.ErrLost) {
			t.Errorf("the wait ended with %v", err)
		}
	})
}

// A heartbeat that failed says nothing: neither is the process known to the database, nor does a lease count from it.
func TestHeartbeatThatFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, Options{Store: &fakeStore{hanging: 1}, Liveness: time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, _, err := e.heartbeat(ctx, e.book.current(), true)
		if err == nil || e.book.isRegistered() || !e.book.answered.IsZero() {
			t.Errorf("acknowledged: %v", err)
		}
	})
}
