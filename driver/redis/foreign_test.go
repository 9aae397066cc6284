package redis_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestForeignHash: a hash under our key, which is what Redisson's RLock keeps,
// is another library's holder: a try says so, a waiter waits for its end, and
// Inspect shows it.
func TestForeignHash(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	c := dial(t, srv.Addr())
	d := openAt(t, srv.URL())
	for _, shared := range []bool{false, true} {
		name := newName()
		c.HSet(t.Context(), d.Key(name), "8743c9c0-0795-4907-87fd-6c719a6b4586:1", 1)
		c.PExpire(t.Context(), d.Key(name), time.Minute)
		r := driver.Request{Name: name, ID: newName(), Shared: shared, TTL: time.Minute}
		_, err := d.Acquire(t.Context(), r)
		if !errors.Is(err, driver.ErrNotAcquired) || !strings.Contains(err.Error(), "another library") {
			t.Errorf("a try at what another library holds: %v", err)
		}
		if err := d.Release(t.Context(), r.Hold(0)); !errors.Is(err, driver.ErrLost) {
			t.Errorf("release: %v", err)
		}
		if err := d.Renew(t.Context(), r.Hold(0), time.Minute); !errors.Is(err, driver.ErrLost) {
			t.Errorf("renew: %v", err)
		}
		q, err := d.Inspect(t.Context(), name)
		if err != nil || len(q) != 1 || !q[0].Held || q[0].Owner != redis.Foreign || q[0].Remaining <= 0 {
			t.Errorf("the queue is %+v, %v", q, err)
		}
		l := process(t, srv.URL())
		got := acquiring(t, l, name)
		await(t, l, name, 2)
		c.Del(t.Context(), d.Key(name))
		k, _ := within(t, got, time.Second)
		release(t, k)
	}
}

// TestRenewBesideForeignHash: if another library has replaced one lock, the other
// locks of the same batch are still renewed.
func TestRenewBesideForeignHash(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	c := dial(t, srv.Addr())
	d := openAt(t, srv.URL())
	var rs []driver.Renewal
	for range 2 {
		r := driver.Request{Name: newName(), ID: newName(), TTL: 10 * time.Second}
		if _, err := d.Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		rs = append(rs, driver.Renewal{Hold: r.Hold(0), TTL: time.Minute})
	}
	c.Del(t.Context(), d.Key(rs[0].Name))
	c.HSet(t.Context(), d.Key(rs[0].Name), "theirs", 1)
	errs := d.RenewAll(t.Context(), rs)
	if !errors.Is(errs[0], driver.ErrLost) || errs[1] != nil {
		t.Errorf("renewals beside a foreign hash: %v", errs)
	}
	c.Del(t.Context(), d.Key(rs[0].Name))
	_ = d.Release(t.Context(), rs[1].Hold)
}

// TestBreakForeign: Break with the token that Inspect shows removes a holder that another
// library has put there, and the waiter is granted. It removes no other holder that has come
// since.
func TestBreakForeign(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	c := dial(t, srv.Addr())
	d := openAt(t, srv.URL())
	for what, put := range map[string]func(key string) error{
		"string":     func(key string) error { return c.SetNX(t.Context(), key, "theirs", 0).Err() },
		"our word":   func(key string) error { return c.SetNX(t.Context(), key, "locker of theirs", 0).Err() },
		"hash":       func(key string) error { return c.HSet(t.Context(), key, "theirs", 1).Err() },
		"with waits": func(key string) error { return c.Set(t.Context(), key, "theirs", time.Minute).Err() },
	} {
		name := newName()
		l := process(t, srv.URL())
		if err := l.Break(t.Context(), name, 0); !errors.Is(err, locker.ErrLost) {
			t.Errorf("%s: break of nothing: %v", what, err)
		}
		k := take(t, l, name)
		if err := l.Break(t.Context(), name, 0); !errors.Is(err, locker.ErrLost) {
			t.Errorf("%s: token 0 broke a holder of ours: %v", what, err)
		}
		release(t, k)
		if err := c.Set(t.Context(), d.Key(name), "another's", 0).Err(); err != nil {
			t.Fatal(err)
		}
		before, err := l.Inspect(t.Context(), name)
		if err != nil || len(before.Tickets) != 1 {
			t.Fatalf("%s: the queue is %+v, %v", what, before, err)
		}
		c.Del(t.Context(), d.Key(name))
		if err := put(d.Key(name)); err != nil {
			t.Fatal(err)
		}
		got, shared := acquiring(t, l, name), acquiring(t, l, name, locker.Shared())
		await(t, l, name, 3)
		q, err := l.Inspect(t.Context(), name)
		if err != nil || !q.Tickets[0].Held {
			t.Fatalf("%s: the queue is %+v, %v", what, q, err)
		}
		for _, token := range []uint64{0, 1, before.Tickets[0].Token} {
			if err := l.Break(t.Context(), name, token); !errors.Is(err, locker.ErrLost) {
				t.Errorf("%s: token %d, of another holder, broke it: %v", what, token, err)
			}
		}
		if err := l.Break(t.Context(), name, q.Tickets[0].Token); err != nil {
			t.Errorf("%s: break: %v", what, err)
		}
		for range 2 { // in either order
			var k *locker.Lock
			took := testbed.Elapsed(func() {
				select {
				case k = <-got:
					got = nil
				case k = <-shared:
					shared = nil
				case <-time.After(20 * time.Second):
					t.Fatalf("%s: nobody was granted after the break", what)
				}
			})
			if took > 100*time.Millisecond+load {
				t.Errorf("%s: granted %v after the break", what, took)
			}
			release(t, k)
		}
	}
}

// TestBreakTells: the cause of a loss by Break is an ErrLost, as in all drivers.
func TestBreakTells(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	d := openAt(t, srv.URL())
	notified := make(chan error, 1)
	d.NotifyLoss(func(_ driver.Hold, cause error) { notified <- cause })
	r := driver.Request{Name: newName(), ID: newName(), TTL: time.Minute}
	g, err := d.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Ping(t.Context()); err != nil { // and the subscription is up
		t.Fatal(err)
	}
	if err := d.Break(t.Context(), r.Name, g.Token); err != nil {
		t.Fatal(err)
	}
	took := testbed.Elapsed(func() {
		select {
		case cause := <-notified:
			if !errors.Is(cause, driver.ErrLost) || cause.Error() != "the ticket was removed from the queue" {
				t.Errorf("the cause of the loss: %v", cause)
			}
		case <-time.After(20 * time.Second):
		}
	})
	if took > time.Second {
		t.Errorf("the holder was notified after %v", took)
	}
}

// TestLapsedIsNotRevived: an Acquire that is repeated for a shared ticket whose lease
// has ended does not bring the ticket back, though another reader keeps the key alive.
func TestLapsedIsNotRevived(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	d := openAt(t, srv.URL())
	name := newName()
	stays := driver.Request{Name: name, ID: newName(), Shared: true, TTL: time.Minute}
	short := driver.Request{Name: name, ID: newName(), Shared: true, TTL: 50 * time.Millisecond}
	if _, err := d.Acquire(t.Context(), stays); err != nil {
		t.Fatal(err)
	}
	first, err := d.Acquire(t.Context(), short)
	if err != nil {
		t.Fatal(err)
	}
	until(t, func() error {
		q, err := d.Inspect(context.Background(), name)
		if err == nil && len(q) != 1 {
			err = errors.New("the short lease lasts")
		}
		return err
	})
	if err := d.Renew(t.Context(), short.Hold(0), time.Minute); !errors.Is(err, driver.ErrLost) {
		t.Errorf("renewal of a lease that has ended: %v", err)
	}
	short.TTL = time.Minute // it is released below
	again, err := d.Acquire(t.Context(), short)
	if err != nil || again.Token <= first.Token {
		t.Errorf("asked again after the lease had ended: token %d after %d, %v", again.Token, first.Token, err)
	}
	for _, r := range []driver.Request{stays, short} {
		if err := d.Release(t.Context(), r.Hold(0)); err != nil {
			t.Error(err)
		}
	}
}

// TestMinHold: a waiter with a minimum hold is granted with its whole lease, not a
// provisional one; Close leaves the lease.
func TestMinHold(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	d, other := openAt(t, srv.URL()), openAt(t, srv.URL())
	holder := driver.Request{Name: newName(), ID: newName(), TTL: time.Minute}
	if _, err := other.Acquire(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	r := driver.Request{Name: holder.Name, ID: newName(), TTL: time.Minute, MinHold: time.Minute, Wait: true}
	r.Joined = func() { go func() { _ = other.Release(context.Background(), holder.Hold(0)) }() }
	g, err := d.Acquire(t.Context(), r)
	if err != nil || g.Claim != 0 {
		t.Fatalf("granted %+v, %v; want the whole lease", g, err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	q, err := other.Inspect(t.Context(), r.Name)
	left := time.Minute - time.Since(begun) - 10*time.Millisecond // Redis counts milliseconds
	if err != nil || len(q) != 1 || q[0].ID != r.ID || q[0].Remaining < left {
		t.Errorf("after Close the queue is %+v, %v", q, err)
	}
	_ = other.Release(t.Context(), r.Hold(0))
}

// TestNothingStaysOfLongLeases: the keys beside a long lease end with it, not
// as long again after it.
func TestNothingStaysOfLongLeases(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	c := dial(t, srv.Addr())
	d := openAt(t, srv.URL())
	r := driver.Request{Name: newName(), ID: newName(), Shared: true, TTL: time.Hour}
	if _, err := d.Acquire(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	for _, end := range []string{"", ":h", ":e", ":t"} {
		left := c.PTTL(t.Context(), d.Key(r.Name)+end).Val()
		if left < r.TTL-time.Minute || left > d.Bounds(r.TTL).Crash+time.Minute {
			t.Errorf("the key %q lives for %v", end, left)
		}
	}
	if err := d.Release(t.Context(), r.Hold(0)); err != nil {
		t.Error(err)
	}
}
