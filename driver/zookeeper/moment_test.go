package zookeeper_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/zookeeper"
)

// hooked is a context that is asked before each request whether it has ended.
type hooked struct {
	context.Context
	ended func() error
}

func (h hooked) Err() error { return h.ended() }

// TestCreatedInTheNextSession has the session change right before the ticket is created, and
// the caller go right after it: the ticket is there, and the error does not deny it.
func TestCreatedInTheNextSession(t *testing.T) {
	_, p, direct := through(t)
	conn, events, err := zk.Connect([]string{p.Addr()}, time.Second, zk.WithLogInfo(false), zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	d, err := zookeeper.New(conn, events, zookeeper.WithPrefix(base(direct)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close(); conn.Close() })
	ctx := ctxFor(t, 30*time.Second)
	warm := request("warm", "warm-1")
	g := must[driver.Grant](t)(d.Acquire(ctx, warm))
	if err := d.Release(ctx, warm.Hold(g.Token)); err != nil {
		t.Fatal(err)
	}

	admin, asked := admin(t), 0
	r := request("x", "next-1")
	_, err = d.Acquire(hooked{context.Background(), func() error {
		if asked++; asked == 1 {
			old := conn.SessionID()
			p.Cut()
			time.Sleep(3 * time.Second) // the session ends
			p.Reset()
			p.Heal()
			for conn.SessionID() == old || conn.State() != zk.StateHasSession {
				sleep(ctx, t)
			}
		}
		if len(nodes(t, admin, base(direct)+"/x")) > 0 {
			return context.Canceled
		}
		return nil
	}}, r)
	queue := nodes(t, admin, base(direct)+"/x")
	if !errors.Is(err, context.Canceled) || len(queue) != 1 {
		t.Fatalf("acquire: %v, and the queue is %v", err, queue)
	}
	if errors.Is(err, driver.ErrNoTicket) {
		t.Errorf("the queue is %v, and the error says that there is no ticket: %v", queue, err)
	}
	if err := d.Release(ctx, r.Hold(0)); err != nil {
		t.Error(err)
	}
}
