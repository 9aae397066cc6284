package zookeeper

import (
	"context"
	"crypto/rand"
	"errors"
	"path"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/kvqueue"
	"github.com/lockerproject/locker/internal/retry"
	"github.com/lockerproject/locker/internal/testbed"
)

// inside makes a driver for tests of its internals.
func inside(t *testing.T) (context.Context, *Driver) {
	t.Helper()
	return insideAt(t, testbed.SharedZookeeper(t).Addr())
}

func insideAt(t *testing.T, addr string) (context.Context, *Driver) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	conn, events, err := zk.Connect([]string{addr}, 5*time.Second, zk.WithLogInfo(false), zk.WithLogger(clientLogger{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	d, err := New(conn, events, WithPrefix("t/"+rand.Text()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return ctx, d
}

// put puts a ticket in the queue of x, without the engine.
func put(ctx context.Context, t *testing.T, d *Driver, r driver.Request, cond any) (kvqueue.Placed, error) {
	t.Helper()
	if err := d.store.Agree(ctx, true); err != nil {
		t.Fatal(err)
	}
	s, err := d.store.Open(ctx, class)
	if err != nil {
		t.Fatal(err)
	}
	return d.store.Put(ctx, &kvqueue.Put{Ticket: kvqueue.Ticket{Name: r.Name, ID: r.ID, Session: s.ID}, Request: &r, If: cond})
}

// enqueue is put for a ticket that is queued in any case, and returns its path.
func enqueue(ctx context.Context, t *testing.T, d *Driver, r driver.Request) string {
	t.Helper()
	p, err := put(ctx, t, d, r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p.Key
}

// TestRefusedTryIsNotQueued has others be queued, or replace the queue, between a try's
// look and its create: it is refused, and was in the queue at no time.
func TestRefusedTryIsNotQueued(t *testing.T) {
	shared := driver.Request{Name: "x", Shared: true, TTL: time.Minute, Renewed: true, Wait: true}
	exclusive := driver.Request{Name: "x", TTL: time.Minute, Renewed: true, Wait: true}
	with := func(r driver.Request, id string) driver.Request { r.ID = id; return r }
	for name, c := range map[string]struct {
		try         driver.Request
		before      func(ctx context.Context, t *testing.T, d *Driver)
		then        func(ctx context.Context, t *testing.T, d *Driver)
		wantRefused bool
	}{
		"a writer is queued after readers": {
			try:         with(shared, "try-1"),
			before:      func(ctx context.Context, t *testing.T, d *Driver) { enqueue(ctx, t, d, with(shared, "reader-1")) },
			then:        func(ctx context.Context, t *testing.T, d *Driver) { enqueue(ctx, t, d, with(exclusive, "writer-1")) },
			wantRefused: true,
		},
		"a writer comes after the readers": {
			try:    with(shared, "try-1"),
			before: func(ctx context.Context, t *testing.T, d *Driver) { enqueue(ctx, t, d, with(shared, "reader-1")) },
			then: func(ctx context.Context, t *testing.T, d *Driver) {
				if err := d.Release(ctx, driver.Hold{Name: "x", ID: "reader-1"}); err != nil {
					t.Fatal(err)
				}
				if ok, _, err := d.store.conn.Exists(d.store.parent("x")); ok || err != nil {
					t.Fatalf("the name's node is still there (error %v)", err)
				}
				enqueue(ctx, t, d, with(exclusive, "writer-1"))
			},
			wantRefused: true,
		},
		"a writer takes an empty queue": {
			try: with(exclusive, "try-1"),
			before: func(_ context.Context, t *testing.T, d *Driver) {
				if _, err := d.store.conn.Create(d.store.parent("x"), []byte{}, 0, d.store.acl); err != nil {
					t.Fatal(err)
				}
			},
			then:        func(ctx context.Context, t *testing.T, d *Driver) { enqueue(ctx, t, d, with(exclusive, "writer-1")) },
			wantRefused: true,
		},
		"another reader is queued": {
			try:    with(shared, "try-1"),
			before: func(ctx context.Context, t *testing.T, d *Driver) { enqueue(ctx, t, d, with(shared, "reader-1")) },
			then:   func(ctx context.Context, t *testing.T, d *Driver) { enqueue(ctx, t, d, with(shared, "reader-2")) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, d := inside(t)
			s, parent := d.store, d.store.parent("x")
			if err := s.createPath(s.base); err != nil {
				t.Fatal(err)
			}
			c.before(ctx, t, d)
			c.try.Wait = false
			look := func() (any, error) {
				s.expectOthers(parent, true)
				return s.Look(ctx, &c.try)
			}
			cond, err := look()
			if err != nil {
				t.Fatalf("look: %v", err)
			}
			c.then(ctx, t, d)
			_, before, err := s.conn.Exists(parent)
			if err != nil {
				t.Fatal(err)
			}
			placed, err := put(ctx, t, d, c.try, cond)
			if !errors.Is(err, kvqueue.ErrChanged) {
				t.Fatalf("put in a queue that has changed: %v, %v", placed, err)
			}
			if cond, err = look(); err == nil {
				placed, err = put(ctx, t, d, c.try, cond)
			}
			if refused := errors.Is(err, driver.ErrNotAcquired); refused != c.wantRefused || !refused && (err != nil || !placed.Granted) {
				t.Fatalf("%v, error %v", placed, err)
			}
			_, after, err := s.conn.Exists(parent)
			if err != nil {
				t.Fatal(err)
			}
			if c.wantRefused && after.Cversion != before.Cversion {
				t.Errorf("the queue has changed %d times for a refused try", after.Cversion-before.Cversion)
			}
		})
	}
}

// TestOwnDuplicateAhead has a create that was given up arrive before the one after it: a
// request that does not wait is not refused because of itself, and the duplicate is
// removed.
func TestOwnDuplicateAhead(t *testing.T) {
	ctx, d := inside(t)
	r := driver.Request{Name: "x", ID: "duplicate-1", TTL: time.Minute, Renewed: true}
	duplicate := enqueue(ctx, t, d, r)
	d.store.unregister(duplicate)
	parent := d.store.parent("x")
	d.store.orphan(parent, r.ID)
	d.store.expectOthers(parent, true)
	g, err := d.Acquire(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	key, _ := kvqueue.Key(d.Engine, "x", g.Token)
	for {
		nodes, _, err := d.store.conn.Children(parent)
		if err != nil {
			t.Fatal(err)
		}
		if len(nodes) == 1 && nodes[0] == path.Base(key) {
			break
		}
		if !retry.Sleep(ctx, 20*time.Millisecond, nil) {
			t.Fatalf("nodes %v, want %s alone", nodes, key)
		}
	}
	if err := d.Release(ctx, r.Hold(g.Token)); err != nil {
		t.Fatal(err)
	}
}

// TestOrphansButNotTheNewOne searches for what an earlier create has left, while another
// is under way for the same ticket.
func TestOrphansButNotTheNewOne(t *testing.T) {
	ctx, d := inside(t)
	r := driver.Request{Name: "x", ID: "again-1", TTL: time.Minute, Renewed: true, Wait: true}
	path := enqueue(ctx, t, d, r)
	d.store.unregister(path) // as it is before the answer
	done := d.store.beginPut(r.ID)
	if err := d.store.deleteAll(ctx, d.store.parent("x"), r.ID); !errors.Is(err, errPutting) {
		t.Errorf("while it is put: %v", err)
	}
	done()
	for _, want := range []error{nil, driver.ErrLost} {
		if err := d.store.deleteAll(ctx, d.store.parent("x"), r.ID); !errors.Is(err, want) {
			t.Errorf("afterwards: %v, want %v", err, want)
		}
	}
}

// TestEra has a queue be emptied and begun anew: what was known of it counts no more.
func TestEra(t *testing.T) {
	ctx, d := inside(t)
	r := driver.Request{Name: "x", ID: "era-1", TTL: time.Minute, Renewed: true, Wait: true}
	var last uint64
	for range 3 {
		p, err := put(ctx, t, d, r, nil)
		if err != nil {
			t.Fatal(err)
		}
		full, err := d.store.Read(ctx, "x")
		if err != nil || full.Era != p.Era || p.Era <= last || p.Number != 1 || full.Complete != 1 {
			t.Fatalf("%+v, placed %+v, error %v: want an era after %d", full, p, err, last)
		}
		if err := d.store.Delete(ctx, &kvqueue.Ticket{Entry: kvqueue.Entry{Key: p.Key}}); err != nil {
			t.Fatal(err)
		}
		empty, err := d.store.Read(ctx, "x")
		if err != nil || empty.Era <= p.Era || len(empty.Entries) > 0 {
			t.Fatalf("%+v, %v: want an era after %d", empty, err, p.Era)
		}
		last = empty.Era - 1 // the next may be the same
	}
}
