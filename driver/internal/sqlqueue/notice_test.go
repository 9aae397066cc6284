package sqlqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// downStore says of errAway that it refuses connections.
type downStore struct{ *fakeStore }

var errAway = errors.New("connection refused")

func (s downStore) Class(err error) Class {
	if errors.Is(err, errAway) {
		return Undone | Passing | Down
	}
	return s.fakeStore.Class(err)
}

// A wait that ends while the lease of its grant is renewed, and the store refuses connections, says so.
func TestOutageDuringTheRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := newAgain(t, after(0, Answer{Result: Queued, Due: time.Hour}, nil))
		e.store = downStore{s}
		s.renew = func(context.Context) error { return errAway }
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		r := waits
		r.Renewed = false
		ended := acquiring(ctx, e, r)
		s.mine.Store(&[]Ticket{{ID: r.ID, Token: 1, Held: true, Left: time.Second}})
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errAway) || !errors.Is(err, driver.ErrUnavailable) {
			t.Errorf("the error does not say why it could not connect: %v", err)
		}
	})
}

// Readers that are granted while the answer to a heartbeat is on its way do not renew one by one.
func TestReadersGrantedBesideAHeartbeat(t *testing.T) {
	const many = 100
	synctest.Test(t, func(t *testing.T) {
		e, s := newAgain(t)
		e.opts.Liveness, e.book.liveness = 10*time.Second, 10*time.Second
		s.take = func(until int64) (Answer, error) {
			if until == 0 {
				return Answer{Sent: time.Now(), Result: Late, Now: storeTime}, nil
			}
			return Answer{Sent: time.Now(), Result: Queued, Due: time.Hour}, nil
		}
		var heartbeats, renewals atomic.Int64
		s.heartbeat = func(int64) Heartbeat {
			h := Heartbeat{Number: heartbeats.Add(1), Mine: Mine{Sent: time.Now()}}
			time.Sleep(200 * time.Millisecond)
			return h
		}
		s.renew = func(context.Context) error { renewals.Add(1); return nil }
		tickets := make([]Ticket, many)
		for i := range tickets {
			tickets[i] = Ticket{ID: fmt.Sprint("id", i), Token: uint64(i + 1)}
		}
		waiting := slices.Clone(tickets)
		s.mine.Store(&waiting)
		e.attend()
		in := &Inbox{e}
		in.Ready()
		_ = e.register(t.Context(), e.book.current(), time.Now())
		var group sync.WaitGroup
		for i := range many {
			group.Go(func() {
				r := driver.Request{Name: "a", ID: tickets[i].ID, TTL: time.Minute, Wait: true, Renewed: true, Shared: true}
				if _, err := e.Acquire(t.Context(), r); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		for n := heartbeats.Load(); heartbeats.Load() == n; { // until one was executed
			time.Sleep(50 * time.Millisecond)
		}
		held := slices.Clone(tickets)
		for i := range held {
			held[i].Held, held[i].Left = true, 9*time.Second
		}
		s.mine.Store(&held)
		for _, k := range held {
			in.Text(GrantText(Grant{ID: k.ID, Token: k.Token, Heartbeat: heartbeats.Load()}))
		}
		group.Wait()
		if n := renewals.Load(); n > 0 {
			t.Errorf("%d renewals, one by one", n)
		}
	})
}

// dueStore counts how often it is asked when queues are due.
type dueStore struct {
	*fakeStore
	asked atomic.Int64
}

func (s *dueStore) Due(ctx context.Context, process int64, names []string) ([]Due, error) {
	s.asked.Add(1)
	return s.fakeStore.Due(ctx, process, names)
}

// A notice that a queue is due sooner may have been missed while the listener connected anew.
func TestListensAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := newAgain(t, after(0, Answer{Result: Queued, Due: time.Hour}, nil))
		e.opts.Liveness, e.book.liveness = 40*time.Second, 40*time.Second
		d := &dueStore{fakeStore: s}
		e.store = d
		s.mine.Store(&[]Ticket{{ID: waits.ID, Token: 2}})
		e.attend()
		in := &Inbox{e}
		in.Ready()
		_ = e.register(t.Context(), e.book.current(), time.Now())
		ctx, cancel := context.WithTimeout(t.Context(), 25*time.Second)
		defer cancel()
		ended := acquiring(ctx, e, waits)
		time.Sleep(11 * time.Second) // the queue was checked, and is checked again in 10 s
		before := d.asked.Load()
		e.book.setReceiving(false)
		time.Sleep(100 * time.Millisecond)
		in.Ready()
		time.Sleep(time.Second)
		if d.asked.Load() == before {
			t.Error("the queue is not checked when notices arrive again")
		}
		if err := <-ended; !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	})
}

// A heartbeat that finds a grant makes the listener begin anew only if its notice is overdue: under contention one finds many whose
// notices are on their way.
func TestGrantBeforeItsNotice(t *testing.T) {
	for left, anew := range map[time.Duration]bool{9 * time.Second: false, 7 * time.Second: false, 6 * time.Second: true} {
		synctest.Test(t, func(t *testing.T) {
			e, s := newAgain(t, after(0, Answer{Result: Queued, Due: time.Hour}, nil))
			e.opts.Liveness, e.book.liveness = 10*time.Second, 10*time.Second
			var granted atomic.Pointer[[]Ticket]
			granted.Store(new([]Ticket))
			s.heartbeat = func(int64) Heartbeat {
				return Heartbeat{Number: 1, Mine: Mine{Sent: time.Now(), Tickets: *granted.Load()}}
			}
			s.mine.Store(&[]Ticket{{ID: waits.ID, Token: 1}})
			(&Inbox{e}).Ready()
			ended := acquiring(t.Context(), e, waits)
			granted.Store(&[]Ticket{{ID: waits.ID, Token: 1, Held: true, Left: left}})
			if err := <-ended; err != nil {
				t.Error(err)
			}
			synctest.Wait()
			if began := len(e.book.reconnect) > 0; began != anew {
				t.Errorf("with %v of the lease left, the listener begins anew: %t", left, began)
			}
		})
	}
}
