package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestClockStepsBack: a ticket that was asked for when the clock was ahead can be asked for again.
func TestClockStepsBack(t *testing.T) {
	t.Parallel()
	nodes := testbed.RedisN(t, 3)
	d, other := openAt(t, nodes.URL()), openAt(t, nodes.URL())
	holder := driver.Request{Name: "a", ID: newID(), TTL: time.Minute}
	if _, err := other.Acquire(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
	r := driver.Request{Name: "a", ID: newID(), TTL: time.Minute, Wait: true}
	ctx, cancel := context.WithCancel(t.Context())
	r.Joined = cancel
	if _, err := d.Acquire(ctx, r); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	cs, shifted := clients(t, nodes), 0
	for _, c := range cs {
		key := keyOf("a") + ":rt"
		round, rest, _ := strings.Cut(c.HGet(t.Context(), key, r.ID).Val(), " ")
		n, err := strconv.ParseInt(round, 10, 64)
		if err != nil {
			continue // the ticket is on a majority
		}
		if err := c.HSet(t.Context(), key, r.ID, fmt.Sprintf("%d %s", n+10_000_000, rest)).Err(); err != nil {
			t.Fatal(err)
		}
		shifted++
	}
	if shifted < 2 {
		t.Fatalf("%d nodes have the ticket", shifted)
	}
	if err := cs[0].ConfigResetStat(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	joined := false
	ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	r.Joined = func() { joined = true; cancel() }
	_, err := d.Acquire(ctx, r)
	if !joined {
		t.Errorf("not queued again: %v; node 0 was asked: %s", err, cs[0].Info(context.Background(), "commandstats").Val())
	}
	_ = d.Release(context.Background(), r.Hold(0))
	_ = other.Release(context.Background(), holder.Hold(0))
}
