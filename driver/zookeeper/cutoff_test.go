package zookeeper_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestCutOffTogether cuts off clients together with the follower that they are
// connected to, right after a renewal: their leases are over before the next
// holders, at another member, are granted.
//
// How much the leader has missed depends on when a client sent its last ping
// before the renewal. So there are several clients. Their pings are spread over the
// interval, and they have sent nothing else for longer than that.
func TestCutOffTogether(t *testing.T) {
	testbed.Nightly(t, "run it after a change to the length of leases, or to heartbeats")
	const (
		holders = 8
		timeout = 6 * time.Second
		pings   = timeout / 3
	)
	e := testbed.ZookeeperEnsemble(t, testbed.Faults())
	member := e.Followers()[0]
	way := member.Proxy(t) // the only connection that the holders have
	at := way.URL() + "?session=" + timeout.String()
	ctx := ctxFor(t, time.Minute)

	var begun []*holding
	pace := time.NewTicker(pings / holders)
	defer pace.Stop()
	for i := range holders {
		begun = append(begun, hold(t, at, fmt.Sprint("x", i)))
		<-pace.C
	}
	next := open(t, e.Leader().URL()+"?session="+timeout.String())
	type grant struct {
		i   int
		at  time.Time
		err error
	}
	grants := make(chan grant, holders)
	for i, h := range begun {
		r, joined := request(h.Name, h.ID+"-next"), make(chan struct{})
		r.Joined = func() { close(joined) }
		go func() {
			_, err := next.Acquire(ctx, r)
			grants <- grant{i, time.Now(), err}
		}()
		<-joined
	}
	undisturbed(pings+pings/4, pings/8) // the last requests are pings, and none was late

	each(t, holders, func(i int) error { return begun[i].renew(ctx) })
	renewed := time.Now()
	way.Cut()
	member.Kill()
	t.Logf("cut off %v after the renewals", time.Since(renewed).Round(time.Millisecond))
	for range holders {
		g := <-grants
		if g.err != nil {
			t.Fatal(g.err)
		}
		h := begun[g.i]
		t.Logf("%s: the next is granted %v after the renewal, which gave %v", h.Name, g.at.Sub(h.renewed).Round(time.Millisecond), h.lease)
		if until := h.renewed.Add(h.lease); g.at.Before(until) {
			t.Errorf("%s: the next is granted %v before the lease is over", h.Name, until.Sub(g.at).Round(time.Millisecond))
		}
	}
	way.Heal() // so that all can be closed
	member.Start()
}

// undisturbed returns when this process has run for d, and has not stood still for
// longer than most: what it sends by a ticker was sent in time.
func undisturbed(d, most time.Duration) {
	for since, last := time.Now(), time.Now(); time.Since(since) < d; last = time.Now() {
		time.Sleep(10 * time.Millisecond)
		if time.Since(last) > most {
			since = time.Now()
		}
	}
}

// holding is a held lock with a connection of its own.
type holding struct {
	driver.Hold
	d       driver.Driver
	lease   time.Duration
	renewed time.Time // when the last renewal was asked for
}

func hold(t *testing.T, url, name string) *holding {
	t.Helper()
	h := &holding{d: open(t, url)}
	r := request(name, name+"-held")
	g := must[driver.Grant](t)(h.d.Acquire(ctxFor(t, 30*time.Second), r))
	h.Hold, h.lease, h.renewed = r.Hold(g.Token), g.TTL, g.Asked
	if h.lease <= 0 {
		t.Fatal("the length of the lease is not known")
	}
	return h
}

func (h *holding) renew(ctx context.Context) error {
	asked := time.Now()
	if err := h.d.Renew(ctx, h.Hold, locker.DefaultTTL); err != nil {
		return err
	}
	h.renewed = asked
	return nil
}
