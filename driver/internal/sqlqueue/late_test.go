package sqlqueue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Requests wait for a connection for longer than one may be under way. The time until which they may take a ticket
// counts from when they are sent: otherwise all of them would be late, for as long as the pool is exhausted.
func TestTicketAfterAWaitForAConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &fakeStore{connecting: takeBound + time.Second, take: func(until int64) (Answer, error) {
			a := Answer{Sent: time.Now(), Now: time.Now().UnixMicro()}
			if a.Result = Late; until >= a.Now {
				a.Result, a.Token = Granted, 1
			}
			return a, nil
		}}
		e := newEngine(t, Options{Store: s, Liveness: time.Second})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := e.Acquire(ctx, driver.Request{Name: "a", ID: "1", TTL: time.Minute}); err != nil {
			t.Errorf("acquire: %v", err)
		}
	})
}

// lateStore has two slow answers: the first heartbeat is executed and not answered; the answer to the request that queues "late" comes late.
type lateStore struct {
	*rowStore
	first bool
}

func (s *lateStore) Take(ctx context.Context, process int64, r driver.Request, until func() int64) (Answer, error) {
	a, err := s.rowStore.Take(ctx, process, r, until)
	if r.ID == "late" && a.Result == Queued {
		time.Sleep(5 * time.Second) // the answer
	}
	return a, err
}

func (s *lateStore) Heartbeat(ctx context.Context, process int64, l time.Duration, create bool) (Heartbeat, error) {
	h, err := s.rowStore.Heartbeat(ctx, process, l, create)
	if !s.first {
		s.first = true
		return Heartbeat{}, errAway
	}
	return h, err
}

// The row of a heartbeat that was not answered expires and is removed, with a ticket whose answer is still under way, and is made
// anew. The wait soon learns that it has no ticket.
func TestAnswerAfterTheRowWasMadeAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s := newRows(t, Options{})
		ls := &lateStore{rowStore: s}
		e.store = ls
		e.book.receiving = true
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if err := <-acquiring(ctx, e, asking("first")); err == nil {
			t.Fatal("the first heartbeat was answered")
		}
		late := acquiring(ctx, e, asking("late"))
		pass(4500 * time.Millisecond) // longer than a process lives
		s.locked(func() {             // somebody removes what has expired
			clear(s.rows)
			clear(s.tickets)
		})
		other := acquiring(ctx, e, asking("other")) // registers the process again
		pass(time.Second)
		if len(other) > 0 {
			t.Fatal(<-other)
		}
		begun := time.Now()
		err := <-late
		if took := time.Since(begun); took > 2*time.Second || !errors.Is(err, driver.ErrLost) {
			t.Errorf("after %v: %v", took, err)
		}
		cancel()
		if err := <-other; !errors.Is(err, context.Canceled) {
			t.Errorf("the other wait has ended with %v", err)
		}
	})
}
