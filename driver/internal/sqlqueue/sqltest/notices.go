package sqltest

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A Listener is a driver, and whether notices reach it.
type Listener interface {
	driver.Driver
	driver.Breaker
	driver.Shortener
	Hears() bool
}

// NoticesArrive checks that whatever ends a wait is noticed by the process of the waiter within the bound, which elapsed
// measures. The drivers have a liveness of an hour, so that heartbeats find nothing before that.
func NoticesArrive(t *testing.T, open func() Listener, bound time.Duration, elapsed func(func()) time.Duration) {
	t.Helper()
	n := &noticed{t: t, holder: open(), first: open(), second: open()}
	for _, l := range []Listener{n.first, n.second} {
		n.name = "n" + rand.Text()
		k, w := n.take("a"), n.wait(l, "b")
		for end := time.Now().Add(20 * time.Second); !l.Hears(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("it does not listen")
			}
		}
		n.ok(n.holder.Release(t.Context(), k))
		n.ok(<-w)
	}
	for _, c := range noticeCases {
		n.name = "n" + rand.Text()
		if took := elapsed(func() { c.play(n) }); took > bound {
			t.Errorf("%s: the waiters were notified after %v, want %v", c.name, took, bound)
		}
	}
}

// noticed has a process that holds a lock and two that wait.
type noticed struct {
	t                     *testing.T
	name                  string
	holder, first, second Listener
	leave                 func() // ends the last wait
}

func (n *noticed) ok(err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatal(err)
	}
}

// request is for a ticket: from r on it is shared.
func (n *noticed) request(letter string) driver.Request {
	return driver.Request{Name: n.name, ID: strings.ToLower(letter + "-" + n.name), TTL: time.Hour, Renewed: true, Shared: letter >= "r"}
}

func (n *noticed) take(letter string) driver.Hold {
	n.t.Helper()
	g, err := n.holder.Acquire(n.t.Context(), n.request(letter))
	n.ok(err)
	return n.request(letter).Hold(g.Token)
}

// wait returns when the ticket is queued.
func (n *noticed) wait(l Listener, letter string) <-chan error {
	n.t.Helper()
	r, queued, ended := n.request(letter), make(chan struct{}), make(chan error, 1)
	r.Wait, r.Joined = true, func() { close(queued) }
	ctx, cancel := context.WithCancel(n.t.Context())
	n.t.Cleanup(cancel)
	n.leave = cancel
	go func() {
		_, err := l.Acquire(ctx, r)
		ended <- err
	}()
	select {
	case <-queued:
	case err := <-ended:
		n.t.Fatalf("%s is not queued: %v", letter, err)
	}
	return ended
}

// granted waits for grants.
func (n *noticed) granted(ended ...<-chan error) {
	n.t.Helper()
	for _, c := range ended {
		n.ok(<-c)
	}
}

var noticeCases = []struct {
	name string
	play func(n *noticed)
}{
	{"a writer after a writer", func(n *noticed) {
		k, w := n.take("a"), n.wait(n.first, "b")
		n.ok(n.holder.Release(n.t.Context(), k))
		n.granted(w)
	}},
	{"readers after a writer", func(n *noticed) {
		k, v, w := n.take("a"), n.wait(n.first, "r"), n.wait(n.second, "s")
		n.ok(n.holder.Release(n.t.Context(), k))
		n.granted(v, w)
	}},
	{"a writer after a reader", func(n *noticed) {
		k, w := n.take("r"), n.wait(n.first, "b")
		n.ok(n.holder.Release(n.t.Context(), k))
		n.granted(w)
	}},
	{"after a break", func(n *noticed) {
		k, w := n.take("a"), n.wait(n.first, "b")
		n.ok(n.holder.Break(n.t.Context(), n.name, k.Token))
		n.granted(w)
	}},
	{"after a writer that leaves", func(n *noticed) {
		n.take("r")
		v := n.wait(n.first, "b")
		leave := n.leave
		w := n.wait(n.second, "s")
		leave()
		if err := <-v; !errors.Is(err, context.Canceled) {
			n.t.Errorf("a wait whose context ends: %v", err)
		}
		n.ok(n.first.Release(n.t.Context(), n.request("b").Hold(0)))
		n.granted(w)
	}},
	{"a waiter that is broken", func(n *noticed) {
		n.take("a")
		w := n.wait(n.first, "b")
		queue, err := n.holder.Inspect(n.t.Context(), n.name)
		n.ok(err)
		n.ok(n.holder.Break(n.t.Context(), n.name, queue[1].Token))
		if err := <-w; !errors.Is(err, driver.ErrLost) {
			n.t.Errorf("a wait whose ticket was broken: %v", err)
		}
	}},
	{"a lease that is shortened", func(n *noticed) {
		k, w := n.take("a"), n.wait(n.first, "b")
		n.wait(n.second, "c")
		n.ok(n.holder.Shorten(n.t.Context(), k, 0))
		n.granted(w)
	}},
}
