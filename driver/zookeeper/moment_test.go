package zookeeper_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/zookeeper"
)

// hooked is a context whose Err, which is called before each request, calls ended.
type hooked struct {
	context.Context
	ended func() error
}

func (h hooked) Err() error { return h.ended() }

// TestCreatedInTheNextSession changes the session right before the ticket is created, and
// ends the caller's context right after it: the ticket is there, and the error admits that.
func TestCreatedInTheNextSession(t *testing.T) {
	t.Parallel()
	_, p, direct := through(t)
	conn, events, err := zk.Connect([]string{p.Addr()}, 2*time.Second, zk.WithLogInfo(false), zk.WithLogger(quiet{}))
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
		if asked++; asked == 2 { // after it was asked whether there is a session
			old, lives := conn.SessionID(), base(direct)+"/lives"
			if _, err := conn.Create(lives, []byte{}, zk.FlagEphemeral, zk.WorldACL(zk.PermAll)); err != nil {
				t.Fatal(err)
			}
			p.Cut()
			for { // until the session has ended
				if there, _, err := admin.Exists(lives); err != nil {
					t.Fatal(err)
				} else if !there {
					break
				}
				sleep(ctx, t)
			}
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

// TestDeletedBeforeGrant deletes the node of a ticket, and the driver notices, right before
// the grant: the ticket is lost, since no later event would notify its holder.
func TestDeletedBeforeGrant(t *testing.T) {
	t.Parallel()
	url := storeURL(t)
	deleted := make(chan string, 100)
	_, d := own(t, session, zookeeper.WithPrefix(base(url)), zookeeper.WithEvents(func(ev zk.Event) {
		if ev.Type == zk.EventNodeDeleted {
			deleted <- ev.Path
		}
	}))
	other, admin := open(t, url), admin(t)
	ctx := ctxFor(t, 30*time.Second)
	held := request("x", "held-1")
	g := must[driver.Grant](t)(other.Acquire(ctx, held))

	joined, ended := make(chan struct{}), make(chan error, 1)
	r := request("x", "waits-1")
	r.Joined = func() { close(joined) }
	var path string
	var armed atomic.Bool
	go func() {
		_, err := d.Acquire(hooked{context.Background(), func() error {
			if armed.CompareAndSwap(true, false) {
				if err := admin.Delete(path, -1); err != nil {
					t.Error(err)
				}
				for <-deleted != path {
				}
			}
			return nil
		}}, r)
		ended <- err
	}()
	<-joined
	path = ticketNode(t, admin, url, 1)
	watchedBy(t, path, 1)
	time.Sleep(time.Second) // so that the grant is confirmed
	armed.Store(true)
	if err := other.Release(ctx, held.Hold(g.Token)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, driver.ErrLost) || armed.Load() {
		t.Errorf("acquire of a ticket that was deleted: %v", err)
	}
}
