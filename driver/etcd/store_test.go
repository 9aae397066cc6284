package etcd

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/kvqueue"
	"github.com/lockerproject/locker/internal/testbed"
)

// onStore returns a store with a ticket that was put and, unless it stays, deleted.
func onStore(t *testing.T, stays bool, opts ...grpc.DialOption) (*store, kvqueue.Ticket) {
	t.Helper()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{testbed.SharedEtcd(t).Addr()}, DialOptions: opts, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	d := newDriver(client, options{prefix: fmt.Sprintf("t%016x", rand.Uint64()), version: version})
	t.Cleanup(func() { _ = d.Close() })
	s, ticket := d.store, kvqueue.Ticket{Name: "a", Session: "1"}
	ticket.Key = s.Key("a", "1", 0, false)
	put, err := client.Put(t.Context(), ticket.Key, "")
	if err != nil {
		t.Fatal(err)
	}
	ticket.Number = uint64(put.Header.Revision)
	if !stays {
		if _, err := client.Delete(t.Context(), ticket.Key); err != nil {
			t.Fatal(err)
		}
	}
	return s, ticket
}

// A watch reports what has happened between the last reading of the queue and the
// beginning of the watch: of the queue, or of the ticket that it is aimed at.
func TestWatchTellsThePast(t *testing.T) {
	t.Parallel()
	s, ticket := onStore(t, false)
	for _, aim := range []kvqueue.Entry{{}, ticket.Entry} {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		var notified []kvqueue.Event
		_ = s.Watch(ctx, kvqueue.Watching{Name: "a", Aim: aim, Complete: ticket.Number}, func(ev kvqueue.Event) {
			notified = append(notified, ev)
			cancel()
		})
		cancel()
		if len(notified) != 1 {
			t.Fatalf("aimed at %q: got %+v", aim.Key, notified)
		}
		gone, q := notified[0].Gone, notified[0].Queue
		if aim.Key != "" && !slices.Equal(gone, []kvqueue.Gone{{Key: aim.Key, Before: aim.Number + 1}}) {
			t.Errorf("aimed at %q: got %+v, want its end", aim.Key, notified)
		}
		if aim.Key == "" && (q == nil || len(q.Entries) > 0 || q.Complete <= ticket.Number) {
			t.Errorf("got %+v, want the empty queue", notified)
		}
	}
}

// If the member that is asked what has happened before the watch does not answer, the watch ends, and the engine asks
// again: the watch may have no other end for a minute, in which nothing would be reported.
func TestWatchEndsIfThePastIsNotTold(t *testing.T) {
	t.Parallel()
	var hangs atomic.Bool
	s, ticket := onStore(t, false, grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
		cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if hangs.Load() {
			<-ctx.Done()
			return ctx.Err()
		}
		return call(ctx, method, req, reply, cc, opts...)
	}))
	hangs.Store(true)
	for _, aim := range []kvqueue.Entry{{}, ticket.Entry} {
		ctx, cancel := context.WithTimeout(t.Context(), 3*answerBound)
		err := s.Watch(ctx, kvqueue.Watching{Name: "a", Aim: aim, Complete: ticket.Number}, func(ev kvqueue.Event) {
			t.Errorf("aimed at %q: reported %+v", aim.Key, ev)
		})
		if err == nil || ctx.Err() != nil {
			t.Errorf("aimed at %q: %v; its context: %v, want an end before that", aim.Key, err, ctx.Err())
		}
		cancel()
	}
}

// A server that is slow is given the time that the engine says.
func TestWatchBesideASlowServer(t *testing.T) {
	t.Parallel()
	var slow atomic.Bool
	s, ticket := onStore(t, false, grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any,
		cc *grpc.ClientConn, call grpc.UnaryInvoker, opts ...grpc.CallOption,
	) error {
		if slow.Load() {
			select {
			case <-time.After(answerBound * 5 / 4):
			case <-ctx.Done():
			}
		}
		return call(ctx, method, req, reply, cc, opts...)
	}))
	slow.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	reported := false
	err := s.Watch(ctx, kvqueue.Watching{Name: "a", Complete: ticket.Number, Bound: 3 * answerBound}, func(kvqueue.Event) {
		reported = true
		cancel()
	})
	if !reported {
		t.Errorf("%v, want a report of the queue", err)
	}
	cancel()
}

// A ticket is missing if its key is another ticket's.
func TestMissingGoesByNumber(t *testing.T) {
	t.Parallel()
	s, there := onStore(t, true)
	another := there
	another.Number--
	missing, err := s.Missing(t.Context(), []kvqueue.Ticket{there, another})
	if err != nil || !slices.Equal(missing, []int{1}) {
		t.Errorf("missing: %v, %v; want the second", missing, err)
	}
}

// A ticket is moved by its number, from whichever lease it is on. A move that is repeated gets the
// same answer.
func TestMoveGoesByNumber(t *testing.T) {
	t.Parallel()
	s, ticket := onStore(t, true)
	session, err := s.Open(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.End(context.Background(), session.ID) })
	another := ticket
	another.Number--
	for _, m := range []struct {
		ticket kvqueue.Ticket
		err    error
	}{{ticket, nil}, {ticket, nil}, {another, driver.ErrLost}} {
		if err := s.Move(t.Context(), &m.ticket, session.ID); !errors.Is(err, m.err) {
			t.Errorf("move of ticket %d: %v, want %v", m.ticket.Number, err, m.err)
		}
		resp, err := s.client.Get(t.Context(), ticket.Key)
		if err != nil || len(resp.Kvs) != 1 || sessionOf(clientv3.LeaseID(resp.Kvs[0].Lease)) != session.ID {
			t.Errorf("the ticket is %+v, %v, want it on %s", resp, err, session.ID)
		}
	}
}
