package zookeeper

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// TestRefusedTryIsNotQueued queues others, or replaces the queue, between a try's first
// read and its create: if they block it, it is refused, and was never queued.
func TestRefusedTryIsNotQueued(t *testing.T) {
	t.Parallel()
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
				if st, err := d.conn.Exists(ctx, d.parent("x")); st != nil || err != nil {
					t.Fatalf("the name's node is still there (error %v)", err)
				}
				enqueue(ctx, t, d, with(exclusive, "writer-1"))
			},
			wantRefused: true,
		},
		"a writer takes an empty queue": {
			try: with(exclusive, "try-1"),
			before: func(ctx context.Context, t *testing.T, d *Driver) {
				if err := d.conn.CreatePath(ctx, d.parent("x"), d.acl); err != nil {
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
			if err := d.conn.CreatePath(ctx, d.base, d.acl); err != nil {
				t.Fatal(err)
			}
			c.before(ctx, t, d)
			c.try.Wait = false
			e := &enqueueing{d: d, r: c.try, parent: d.parent("x"), bound: time.Now().Add(enqueueBound)}
			d.expectOthers(e.parent, true)
			if err := e.step(ctx); err != nil || e.t != nil {
				t.Fatalf("first read: %v", err)
			}
			c.then(ctx, t, d)
			before, err := d.conn.Exists(ctx, e.parent)
			if err != nil {
				t.Fatal(err)
			}
			d.expectOthers(e.parent, true)
			err = e.enqueue(ctx)
			if refused := errors.Is(err, driver.ErrNotAcquired); refused != c.wantRefused || !refused && (err != nil || !e.granted) {
				t.Fatalf("granted %v, error %v", e.granted, err)
			}
			after, err := d.conn.Exists(ctx, e.parent)
			if err != nil {
				t.Fatal(err)
			}
			if c.wantRefused && after.Cversion != before.Cversion {
				t.Errorf("the queue has changed %d times for a refused try", after.Cversion-before.Cversion)
			}
		})
	}
}
