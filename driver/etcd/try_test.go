package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

func tryFor(name, id string) driver.Request {
	r := request(name, id, 30*time.Second)
	r.Wait = false
	return r
}

// A refused try is never queued, writes nothing, and adds nothing to the store's log,
// neither for a ticket nor for a lease that the ticket would need.
func TestRefusedTryCostsNoCommit(t *testing.T) {
	t.Parallel()
	srv := testbed.Etcd(t, testbed.Faults()) // nobody else writes
	client := newClient(t, srv.Addr())
	holder, d := newDriver(t, client), newDriver(t, client)
	shared := func(r driver.Request, limit int) driver.Request {
		r.Shared, r.Limit = true, limit
		return r
	}
	fixed := func(r driver.Request) driver.Request {
		r.Renewed = false
		return r
	}
	acquire(t, holder, request("x", "id-x", time.Minute))
	acquire(t, holder, shared(request("s", "id-s", time.Minute), 0))
	acquire(t, holder, shared(request("l", "id-l1", time.Minute), 2))
	acquire(t, holder, shared(request("l", "id-l2", time.Minute), 2))
	index := func() uint64 {
		s, err := client.Status(t.Context(), srv.Addr())
		if err != nil {
			t.Fatal(err)
		}
		return s.RaftIndex
	}
	watched := client.Watch(t.Context(), etcdPrefix, clientv3.WithPrefix(), clientv3.WithCreatedNotify())
	<-watched
	for i, r := range []driver.Request{
		tryFor("x", "id-1"), tryFor("s", "id-2"), shared(tryFor("l", "id-3"), 2), shared(tryFor("x", "id-4"), 0),
		fixed(tryFor("x", "id-5")), tryFor("l", "id-6"),
	} {
		before := index()
		const tries = 20
		for j := range tries {
			r.ID = fmt.Sprint("id-", i, "-", j)
			if _, err := d.Acquire(t.Context(), r); !errors.Is(err, driver.ErrNotAcquired) {
				t.Errorf("try %d for %q: %v, want ErrNotAcquired", i, r.Name, err)
			}
		}
		if n := index() - before; n > tries/4 { // the store itself writes now and then
			t.Errorf("%d refused tries of case %d for %q cost %d entries of the log", tries, i, r.Name, n)
		}
	}
	acquire(t, d, request("end", "id-end", time.Minute)) // the watch reports this, and nothing before
	resp := <-watched
	if key := string(resp.Events[0].Kv.Key); !strings.Contains(key, "end#") {
		t.Errorf("the refused tries left a trace: %s", key)
	}
}

const etcdPrefix = "locker/"

// Another ticket is queued between a try's read and its put. If it blocks the try, the
// try is refused, and no other client sees anything of it.
func TestTryIsOvertaken(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	for _, tc := range []struct {
		what            string
		overtakes, mine func(*driver.Request)
		granted         bool
	}{
		{what: "writer by writer"},
		{what: "writer by reader", overtakes: func(r *driver.Request) { r.Shared = true }},
		{what: "reader by writer", mine: func(r *driver.Request) { r.Shared = true }},
		{
			what: "permit by permit", granted: true,
			overtakes: func(r *driver.Request) { r.Shared, r.Limit = true, 2 }, mine: func(r *driver.Request) { r.Shared, r.Limit = true, 2 },
		},
		{
			what:      "last permit by permit",
			overtakes: func(r *driver.Request) { r.Shared, r.Limit = true, 1 }, mine: func(r *driver.Request) { r.Shared, r.Limit = true, 1 },
		},
	} {
		t.Run(tc.what, func(t *testing.T) {
			var armed atomic.Bool
			prefix := randomPrefix()
			other := newDriver(t, newClient(t, srv.Addr()), withPrefix(prefix))
			overtakes := request("raced", "id-other", time.Minute)
			if tc.overtakes != nil {
				tc.overtakes(&overtakes)
			}
			client := dialed(t, []string{srv.Addr()}, unary(func(_ context.Context, method string, req, _ any, next func() error) error {
				if isPut(req) && armed.CompareAndSwap(true, false) {
					if _, err := other.Acquire(context.Background(), overtakes); err != nil {
						t.Error(err)
					}
				}
				return next()
			}))
			d := newDriver(t, client, withPrefix(prefix))
			mine := tryFor("raced", "id-mine")
			if tc.mine != nil {
				tc.mine(&mine)
			}
			armed.Store(true)
			_, err := d.Acquire(t.Context(), mine)
			if armed.Load() {
				t.Fatal("no put was sent: the test tests nothing")
			}
			if tc.granted != (err == nil) || err != nil && !errors.Is(err, driver.ErrNotAcquired) {
				t.Errorf("the try: %v", err)
			}
			want := 1
			if tc.granted {
				want = 2
			}
			if n := count(t, newClient(t, srv.Addr()), prefix); n != want {
				t.Errorf("%d tickets are queued, want %d", n, want)
			}
		})
	}
}
