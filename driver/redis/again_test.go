package redis_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// A request for a ticket that is queued, which comes again while there is no subscription, or
// as one that does not wait, is not answered as if the ticket were granted.
func TestQueuedTicketIsAskedForAgain(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	holder, waiter := openAt(t, srv.URL()), openAt(t, srv.URL())
	r := driver.Request{Name: newName(), ID: newName(), TTL: time.Minute}
	g, err := holder.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	w := r
	w.ID, w.Wait = newName(), true
	for _, waits := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		w.Joined = cancel
		if _, err := waiter.Acquire(ctx, w); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		again := w
		again.Wait = waits
		ctx, cancel = context.WithTimeout(t.Context(), time.Second)
		again.Joined = cancel
		_, err := openOver(t, goredis.NewClient(&goredis.Options{Addr: srv.Addr(), Dialer: dialUnsubscribed})).Acquire(ctx, again)
		cancel()
		want := map[bool]error{true: context.DeadlineExceeded, false: driver.ErrNotAcquired}[waits]
		if !errors.Is(err, want) || errors.Is(err, driver.ErrNoTicket) {
			t.Errorf("wait %v: %v, want %v", waits, err, want)
		}
	}
	if queue, err := holder.Inspect(t.Context(), r.Name); err != nil || len(queue) != 1 {
		t.Errorf("the queue is %v, %v, want the holder alone: a try leaves nothing", queue, err)
	}
	if err := holder.Release(t.Context(), r.Hold(g.Token)); err != nil {
		t.Error(err)
	}
}

// An unsubscribed is a connection on which no subscription comes about.
type unsubscribed struct{ net.Conn }

func dialUnsubscribed(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, addr)
	return unsubscribed{c}, err
}

func (c unsubscribed) Write(b []byte) (int, error) {
	if bytes.Contains(b, []byte("subscribe")) {
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// TestLateNotice: the notification of a grant that has ended, which comes when the ticket has been asked for again, is no
// grant.
func TestLateNotice(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	c := dial(t, srv.Addr())
	waiter := openAt(t, srv.URL())
	if err := waiter.Ping(t.Context()); err != nil { // it listens, and nobody else does
		t.Fatal(err)
	}
	channels, err := c.PubSubChannels(t.Context(), "*:proc:*").Result()
	if err != nil || len(channels) != 1 {
		t.Fatalf("channels %q, %v", channels, err)
	}
	sub := c.Subscribe(t.Context(), channels[0])
	t.Cleanup(func() { _ = sub.Close() })
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	holder := openAt(t, srv.URL())
	first := driver.Request{Name: newName(), ID: newName(), TTL: time.Minute}
	if _, err := holder.Acquire(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	w := first
	w.ID, w.Wait = newName(), true
	ctx, cancel := context.WithCancel(t.Context())
	w.Joined = cancel
	if _, err := waiter.Acquire(ctx, w); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := holder.Release(t.Context(), first.Hold(0)); err != nil {
		t.Fatal(err)
	}
	notice := ""
	for end := time.After(5 * time.Second); notice == ""; {
		select {
		case m := <-sub.Channel():
			if strings.HasPrefix(m.Payload, "g") {
				notice = m.Payload
			}
		case <-end:
			t.Fatal("no notification")
		}
	}
	until(t, func() error { // the provisional lease has ended
		q, err := holder.Inspect(t.Context(), w.Name)
		if err == nil && len(q) != 0 {
			err = errors.New("the provisional lease lasts")
		}
		return err
	})
	second := first
	second.ID = newName()
	if _, err := holder.Acquire(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	w.Joined = func() { c.Publish(t.Context(), channels[0], notice) } // only now it arrives
	if g, err := waiter.Acquire(ctx, w); err == nil {
		t.Errorf("granted %+v while another holds", g)
	}
	_ = waiter.Release(t.Context(), w.Hold(0))
	if err := holder.Release(t.Context(), second.Hold(0)); err != nil {
		t.Errorf("the holder: %v", err)
	}
}
