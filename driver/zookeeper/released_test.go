package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// TestReleasedBeforeCreate releases a ticket at every step of its Acquire, also before the
// create is sent: a ticket does not come to be after its release was answered (D13).
func TestReleasedBeforeCreate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		r      driver.Request
		reader bool // is held before
	}{
		"free":          {r: driver.Request{Wait: true}},
		"free try":      {r: driver.Request{}},
		"queued":        {r: driver.Request{Wait: true}, reader: true},
		"shared":        {r: driver.Request{Shared: true, Wait: true}, reader: true},
		"shared try":    {r: driver.Request{Shared: true}, reader: true},
		"exclusive try": {r: driver.Request{}, reader: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.r.Name, c.r.TTL, c.r.Renewed = "x", time.Minute, true
			for step := 1; releasedAt(t, c.r, c.reader, step); step++ {
			}
		})
	}
}

// releasedAt reports whether Acquire came to that step.
func releasedAt(t *testing.T, r driver.Request, reader bool, step int) bool {
	t.Helper()
	at := storeURL(t)
	ctx := ctxFor(t, 30*time.Second)
	d, conn := open(t, at), admin(t)
	if err := d.(driver.Pinger).Ping(ctx); err != nil {
		t.Fatal(err)
	}
	if reader {
		held := request("x", "held-1")
		held.Shared = true
		must[driver.Grant](t)(d.Acquire(ctx, held))
	}
	r.ID = fmt.Sprint("released-", step)
	var released error
	asked := 0
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_, err := d.Acquire(hooked{short, func() error {
		if asked++; asked == step {
			brief, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
			defer cancel()
			released = d.Release(brief, r.Hold(0))
		}
		return short.Err()
	}}, r)
	answered := released == nil || errors.Is(released, driver.ErrLost)
	left := slices.ContainsFunc(nodes(t, conn, base(at)+"/x"), func(n string) bool { return strings.HasPrefix(n, r.ID) })
	if asked >= step && answered && left {
		t.Errorf("step %d: the release was answered with %v, and the ticket is queued after that (acquire: %v)", step, released, err)
	}
	if err := d.Release(ctx, r.Hold(0)); err != nil && !errors.Is(err, driver.ErrLost) {
		t.Error(err)
	}
	return asked >= step
}

// TestAskedTwiceAtOnce repeats a request before its create is sent: one ticket is queued (D1).
func TestAskedTwiceAtOnce(t *testing.T) {
	t.Parallel()
	at := storeURL(t)
	ctx := ctxFor(t, 30*time.Second)
	d := open(t, at)
	if err := d.(driver.Pinger).Ping(ctx); err != nil {
		t.Fatal(err)
	}
	r := request("x", "twice-1")
	asked := false
	g, err := d.Acquire(hooked{context.Background(), func() error {
		if !asked {
			asked = true
			brief, cancel := context.WithTimeout(ctx, 3*time.Second)
			defer cancel()
			if _, err := d.Acquire(brief, r); err != nil && !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		return nil
	}}, r)
	if err != nil {
		t.Fatal(err)
	}
	if queue := nodes(t, admin(t), base(at)+"/x"); len(queue) != 1 {
		t.Errorf("the queue is %v, want one ticket", queue)
	}
	if err := d.Release(ctx, r.Hold(g.Token)); err != nil {
		t.Error(err)
	}
}
