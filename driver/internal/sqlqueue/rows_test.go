package sqlqueue

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A rowStore has rows of processes and tickets that wait for them.
type rowStore struct {
	*fakeStore

	mu      sync.Mutex
	rows    map[int64]int64   // and their heartbeats
	tickets map[string]Ticket // by their IDs
	of      map[string]int64  // their processes
	down    error             // the answer to heartbeats and checks
	slow    time.Duration     // how long a heartbeat takes
	hangs   time.Duration     // how long a request takes that queues a ticket
	beats   []time.Time
	reads   []time.Time // of Mine
	all     int         // of these, for all
	next    Due
	dues    []time.Time
}

func newRows(t *testing.T, o Options) (*Engine, *rowStore) {
	s := &rowStore{fakeStore: &fakeStore{}, rows: make(map[int64]int64), tickets: make(map[string]Ticket), of: make(map[string]int64), next: Due{In: time.Hour}}
	o.Store = s
	if o.Liveness == 0 {
		o.Liveness = 4 * time.Second
	}
	return newEngine(t, o), s
}

func (s *rowStore) locked(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

func (s *rowStore) Take(_ context.Context, process int64, r driver.Request, until func() int64) (Answer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := Answer{Sent: time.Now()}
	switch {
	case until() == 0:
		a.Result, a.Now = Late, storeTime
	case s.rows[process] == 0:
		a.Result = Unregistered
	default:
		if s.hangs > 0 {
			s.mu.Unlock()
			time.Sleep(s.hangs)
			s.mu.Lock()
		}
		s.tickets[r.ID], s.of[r.ID] = Ticket{ID: r.ID, Token: uint64(len(s.tickets) + 1)}, process
		a.Result, a.Due = Queued, time.Hour
	}
	return a, nil
}

func (s *rowStore) Heartbeat(_ context.Context, process int64, _ time.Duration, create bool) (h Heartbeat, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h.Sent = time.Now()
	s.beats = append(s.beats, h.Sent)
	if s.down != nil {
		return h, s.down
	}
	if s.slow > 0 {
		s.mu.Unlock()
		time.Sleep(s.slow)
		s.mu.Lock()
	}
	if s.rows[process] > 0 || create {
		s.rows[process]++
	}
	h.Number = s.rows[process]
	return h, nil
}

func (s *rowStore) Mine(_ context.Context, process int64, all bool) (m Mine, err error) {
	time.Sleep(time.Nanosecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Sent = time.Now()
	if s.reads = append(s.reads, m.Sent); all {
		s.all++
	}
	for id, t := range s.tickets {
		if s.of[id] == process && (all || t.Held) {
			m.Tickets = append(m.Tickets, t)
		}
	}
	return m, nil
}

func (s *rowStore) Due(_ context.Context, _ int64, names []string) ([]Due, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dues = append(s.dues, time.Now())
	if s.down != nil {
		return nil, s.down
	}
	return slices.Repeat([]Due{s.next}, len(names)), nil
}

func (s *rowStore) grant(id string) {
	s.locked(func() {
		t := s.tickets[id]
		t.Held, t.Left = true, time.Minute
		s.tickets[id] = t
	})
}

func (s *rowStore) Class(err error) Class {
	if errors.Is(err, errAway) {
		return Undone | Down
	}
	return s.fakeStore.Class(err)
}

func asking(id string) driver.Request {
	r := waits
	r.ID = id
	return r
}

// The row of a process has expired, which the next heartbeat finds out or the next request for a ticket: the waits end with ErrLost, and
// the process goes on under another ID.
func TestRowHasExpired(t *testing.T) {
	for _, byRequest := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e, s := newRows(t, Options{})
			former := e.book.current()
			first := acquiring(t.Context(), e, asking("first"))
			pass(1500 * time.Millisecond)
			s.locked(func() { clear(s.rows) })
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var second <-chan error
			if byRequest {
				second = acquiring(ctx, e, asking("second"))
			} else {
				pass(time.Second)
			}
			select {
			case err := <-first:
				if !errors.Is(err, driver.ErrLost) {
					t.Error(err)
				}
			default:
				t.Fatal("the wait goes on")
			}
			if !byRequest {
				second = acquiring(ctx, e, asking("second"))
			}
			s.locked(func() {
				if now := e.book.current(); now == former || s.of["second"] != now || s.rows[now] == 0 || s.rows[former] > 0 {
					t.Errorf("%d is %d now, the second ticket is of %d, and the rows are %v", former, now, s.of["second"], s.rows)
				}
			})
			if pass(20 * time.Second); len(second) > 0 {
				t.Errorf("the second: %v", <-second)
			}
		})
	}
}

// Heartbeats that fail are repeated sooner, and the error of a wait that ends then says why. Afterwards all tickets are read.
func TestHeartbeatsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := newRows(t, Options{})
		e.book.receiving = true
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first, second := acquiring(ctx, e, asking("first")), acquiring(t.Context(), e, asking("second"))
		pass(1500 * time.Millisecond)
		s.locked(func() { s.down, s.beats = errAway, nil })
		pass(2 * time.Second)
		s.locked(func() {
			if n := len(s.beats); n < 6 || n > 9 {
				t.Errorf("%d heartbeats in an outage of two seconds", n)
			}
		})
		cancel()
		if err := <-first; !errors.Is(err, errAway) || !errors.Is(err, context.Canceled) {
			t.Errorf("the error does not say why: %v", err)
		}
		s.locked(func() {
			delete(s.tickets, "second")
			s.down, s.all = nil, 0
		})
		pass(time.Second)
		select {
		case err := <-second:
			if !errors.Is(err, driver.ErrLost) {
				t.Error(err)
			}
		default:
			t.Error("the loss is not noticed after the outage")
		}
	})
}

// Without notices a process that waits asks for its grants, more and more seldom, and soon again after a grant.
func TestPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := newRows(t, Options{})
		first, second := acquiring(t.Context(), e, asking("first")), acquiring(t.Context(), e, asking("second"))
		reads := func(d time.Duration) (n int) {
			s.locked(func() { s.reads = nil })
			pass(d)
			s.locked(func() { n = len(s.reads) })
			return n
		}
		if n := reads(100 * time.Millisecond); n < 8 || n > 25 {
			t.Errorf("%d polls in the first 100 ms", n)
		}
		pass(10 * time.Second)
		if n := reads(time.Minute); n < 240 || n > 310 { // and with each heartbeat
			t.Errorf("%d polls in a minute", n)
		}
		s.grant("first")
		for range 25 {
			if pass(10 * time.Millisecond); len(first) > 0 {
				break
			}
		}
		if len(first) != 1 || <-first != nil {
			t.Error("the grant is not noticed")
		}
		if n := reads(50 * time.Millisecond); n < 3 {
			t.Error("it does not poll sooner after a grant")
		}
		s.grant("second")
		pass(250 * time.Millisecond)
		if len(second) != 1 || <-second != nil {
			t.Error("the grant is not noticed")
		}
		pass(time.Second)
		if n := reads(5 * time.Second); n > 5 {
			t.Errorf("%d polls, and nothing waits", n)
		}
	})
}

// A queue is checked when something at its head may expire: by the process of the first waiter at once, by others a little later, and by
// all now and then.
func TestChecksQueuesThatAreDue(t *testing.T) {
	const in = 400 * time.Millisecond
	for _, c := range []struct {
		next        Due
		receiving   bool
		least, most time.Duration
	}{
		{Due{In: in, First: true}, true, in, in + 10*time.Millisecond},
		{Due{In: in}, true, in, in + stagger + 10*time.Millisecond},
		{Due{In: time.Hour, First: true}, false, 0, longestPoll + 10*time.Millisecond},
		{Due{In: time.Hour, First: true}, true, 0, time.Second + 10*time.Millisecond},
		{Due{In: time.Hour}, false, 0, time.Second + 10*time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			e, s := newRows(t, Options{})
			e.book.receiving = c.receiving
			s.next = c.next
			wait := acquiring(t.Context(), e, waits)
			pass(20 * time.Second)
			s.locked(func() {
				n := len(s.dues)
				if n < 20-1 || n > 20*4+1 {
					t.Errorf("%+v: %d checks in 20 s", c, n)
				}
				for i := range n - 1 {
					if d := s.dues[i+1].Sub(s.dues[i]); i > 0 && (d < c.least || d > c.most) {
						t.Errorf("%+v: the next check after %v", c, d)
					}
				}
			})
			if len(wait) > 0 {
				t.Error(<-wait)
			}
		})
	}
}

// The answer to a release or a break has grants to this process. What is not held any more is forgotten.
func TestRemovalsAndRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := newRows(t, Options{})
		e.book.hold(&waiter{id: "b"}, 2)
		e.book.hold(&waiter{id: "a"}, 1) // nobody listens to losses
		(&Inbox{e}).Lost(driver.Hold{ID: "a", Token: 1})
		lost := 0
		e.NotifyLoss(func(driver.Hold, error) { lost++ })
		(&Inbox{e}).Lost(driver.Hold{ID: "a", Token: 1})
		s.fakeStore.renew = func(context.Context) error { return nil } // renews the first
		errs := e.RenewAll(t.Context(), []driver.Renewal{{Hold: driver.Hold{ID: "b"}}, {Hold: driver.Hold{ID: "a"}}})
		if errs[0] != nil || !errors.Is(errs[1], driver.ErrLost) {
			t.Error(errs)
		}
		(&Inbox{e}).Lost(driver.Hold{ID: "a", Token: 1}) // which is known
		if lost != 1 || len(e.book.held) != 1 {
			t.Errorf("%d losses, and %v are held", lost, e.book.held)
		}
		_ = e.Close()
		if err := e.Release(t.Context(), driver.Hold{ID: "a"}); !errors.Is(err, driver.ErrClosed) {
			t.Error(err)
		}
	})
}

// A process learns of what it waits for by notices, and asks seldom as long as they arrive.
func TestAsksSeldomWhileNoticesArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := newRows(t, Options{Notifier: &fakeNotifier{}})
		wait := acquiring(t.Context(), e, waits)
		pass(time.Second)
		s.locked(func() { s.reads, s.beats, s.all = nil, nil, 0 })
		pass(time.Minute)
		s.locked(func() {
			if len(s.reads) != 60/compareEvery || s.all != len(s.reads) || len(s.beats) != 60 {
				t.Errorf("in a minute %d reads, of all %d, and %d heartbeats", len(s.reads), s.all, len(s.beats))
			}
		})
		if (&Inbox{e}).Granted(Grant{ID: "nobody's", Token: 1}); len(wait) > 0 {
			t.Error(<-wait)
		}
	})
}

// Several find out at once that the process is not registered: one of them registers it, and the others go on with that. It lives
// while their requests hang.
func TestRegistersOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := newRows(t, Options{})
		s.slow, s.hangs = 100*time.Millisecond, 10*time.Second
		process := e.book.current()
		all := []<-chan error{acquiring(t.Context(), e, asking("a")), acquiring(t.Context(), e, asking("b")), acquiring(t.Context(), e, asking("c"))}
		pass(time.Second)
		s.locked(func() {
			if len(s.beats) > 2 || len(s.rows) != 1 || e.book.current() != process {
				t.Errorf("%d heartbeats, rows %v", len(s.beats), s.rows)
			}
		})
		pass(8 * time.Second)
		s.locked(func() {
			if n := len(s.beats); n < 8 || n > 11 {
				t.Errorf("%d heartbeats in 9 s", n)
			}
		})
		pass(time.Minute)
		for _, ended := range all {
			if len(ended) > 0 {
				t.Error(<-ended)
			}
		}
	})
}

// What is heard of a former ID does not concern the present one.
func TestFormerID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := newRows(t, Options{})
		b := &e.book
		former := b.current()
		b.acknowledged(former, 1, time.Now())
		b.expired(former)
		if b.acknowledged(former, 2, time.Now()); b.isRegistered() {
			t.Error("a heartbeat of the former ID has registered the present one")
		}
		wait := acquiring(t.Context(), e, waits)
		b.expired(former)
		if err := e.register(t.Context(), former, time.Now()); err != nil { // a request of that was answered: there is no such process
			t.Error(err)
		}
		if pass(time.Second); len(wait) > 0 {
			t.Error(<-wait)
		}
	})
}

type removingStore struct {
	*rowStore
	answer Removal
	err    error
}

func (s *removingStore) Remove(context.Context, int64, driver.Hold) (Removal, error) {
	return s.answer, s.err
}

func TestRemovalGrants(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, rows := newRows(t, Options{})
		s := &removingStore{rowStore: rows, err: errAway}
		e.store = s
		ended := acquiring(t.Context(), e, waits)
		e.book.hold(&waiter{id: "a"}, 1)
		h := driver.Hold{Name: "a", ID: "a", Token: 1}
		if err := e.Release(t.Context(), h); !errors.Is(err, driver.ErrUnavailable) || len(e.book.held) != 1 {
			t.Errorf("%v, and %v are held", err, e.book.held)
		}
		s.answer, s.err = Removal{Found: true, Grants: []Grant{{ID: waits.ID, Token: 2, Heartbeat: 1}}}, nil
		if err := e.Release(t.Context(), h); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil || len(e.book.held) != 1 {
			t.Errorf("%v, and %v are held", err, e.book.held)
		}
	})
}

// A ticket is asked for again while its first request is under way. The late answer that grants it does not end the wait of the second.
func TestGrantedAfterItWasAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		queued := after(0, Answer{Result: Queued, Due: time.Hour}, nil)
		e, s := newAgain(t, after(3*time.Second, Answer{Result: Granted, Token: 1}, nil), queued)
		s.mine.Store(&[]Ticket{{ID: waits.ID, Token: 1}})
		first, second := acquiring(t.Context(), e, waits), acquiring(t.Context(), e, waits)
		pass(4 * time.Second)
		if len(first) != 1 || len(second) != 0 {
			t.Fatalf("%d and %d have ended", len(first), len(second))
		}
		s.mine.Store(&[]Ticket{{ID: waits.ID, Token: 1, Held: true, Left: time.Minute}})
		if err := <-second; err != nil {
			t.Error(err)
		}
	})
}

// Close removes the row of a process that has one.
func TestCloseLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := newRows(t, Options{})
		process := e.book.current()
		ended := acquiring(t.Context(), e, waits)
		_ = e.Close()
		if err := <-ended; !errors.Is(err, driver.ErrClosed) || !slices.Equal(s.gone(), []int64{process}) {
			t.Errorf("%v have left: %v", s.gone(), err)
		}
		if _, err := e.Acquire(t.Context(), waits); !errors.Is(err, driver.ErrClosed) {
			t.Error(err)
		}
		other, s := newRows(t, Options{})
		if _ = other.Close(); len(s.gone()) > 0 {
			t.Error("a process has left that was never there")
		}
	})
}

// What a former ID of the process has says nothing about a ticket that was queued under the present one.
func TestComparesTheTicketsOfOneProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBook(time.Second)
		b.nextID()
		former := b.current()
		b.expired(former)
		w := b.add(asking("a"))
		b.acknowledged(b.current(), 1, time.Now())
		if !b.queued(w, time.Now(), time.Hour) {
			t.Fatal("its process has expired")
		}
		time.Sleep(time.Millisecond)
		b.compare(Mine{Sent: time.Now()}, former, true)
		if len(w.outcome) > 0 {
			t.Errorf("it has ended: %+v", <-w.outcome)
		}
		b.compare(Mine{Sent: time.Now()}, b.current(), true)
		if len(w.outcome) == 0 {
			t.Error("it waits, though it is gone")
		}
	})
}
