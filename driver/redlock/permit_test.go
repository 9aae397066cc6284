package redlock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// A ticket for one of several permits that is asked for again, where it already holds, is not granted beside holders
// that were repaired on those nodes since.
func TestPermitAskedAgain(t *testing.T) {
	t.Parallel()
	x := newTrio(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	permit := func(id string) driver.Request {
		return driver.Request{Name: "name", ID: id, TTL: time.Minute, Shared: true, Limit: 2}
	}
	var back []*testbed.Proxy
	for id, missing := range map[string]int{"holds-0": 2, "holds-2": 0} { // each lacks another node
		var clients []redis.UniversalClient
		for i, m := range x.members {
			way := m.Proxy(t)
			if i == missing {
				way.Refuse()
				back = append(back, way)
			}
			c := redis.NewClient(&redis.Options{Addr: way.Addr(), DialerRetries: 1})
			t.Cleanup(func() { _ = c.Close() })
			clients = append(clients, c)
		}
		d, err := New(clients)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = d.Close() })
		if _, err := d.Acquire(ctx, permit(id)); err != nil {
			t.Fatal(err)
		}
	}
	third := permit("third")
	lost := []<-chan struct{}{x.ways[0].LoseReply("third"), x.ways[2].LoseReply("third")}
	if _, err := x.d.Acquire(ctx, third); err == nil {
		t.Fatal("granted without the answers of a majority")
	}
	for _, l := range lost {
		<-l
	}
	if x.direct[0].ZCard(ctx, x.key()+":rh").Val() != 2 || x.direct[2].ZCard(ctx, x.key()+":rh").Val() != 2 {
		t.Fatal("it does not hold on the first and the third node")
	}
	for _, way := range back {
		way.Heal()
	}
	x.until("repaired", func() bool {
		return x.direct[0].ZCard(ctx, x.key()+":rh").Val() == 3 && x.direct[2].ZCard(ctx, x.key()+":rh").Val() == 3
	})
	if g, err := x.d.Acquire(ctx, third); !errors.Is(err, driver.ErrNotAcquired) {
		t.Errorf("a third of two permits: %+v, %v", g, err)
	}
}
