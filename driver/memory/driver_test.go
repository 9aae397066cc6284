package memory_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

// A queue has counts and two lists, whereas the grant rule is about one list. On
// random queues both must agree after every step.
func TestQueueFollowsTheRule(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		synctest.Test(t, func(*testing.T) { randomQueue(rt) })
	})
}

func randomQueue(rt *rapid.T) {
	d := memory.New()
	defer d.Close()
	waits, cancel := context.WithCancel(ctx)
	defer cancel()
	var ids []string
	for i := range rapid.IntRange(1, 40).Draw(rt, "steps") {
		switch k := rapid.IntRange(0, 9).Draw(rt, "step"); {
		case k < 5:
			r := request(rt, fmt.Sprintf("id-%d", i))
			ids = append(ids, r.ID)
			go func() { _, _ = d.Acquire(waits, r) }()
		case k < 9 && len(ids) > 0:
			id := rapid.SampledFrom(ids).Draw(rt, "release")
			_ = d.Release(ctx, driver.Hold{Name: "a", ID: id})
		default:
			time.Sleep(time.Second) // some leases end
		}
		synctest.Wait()
		queue, err := d.Inspect(ctx, "a")
		if err != nil {
			rt.Fatal(err)
		}
		for i, granted := range driver.Granted(queue) {
			// A holder stays a holder when others release. With different limits it
			// may be behind a ticket that waits.
			if granted && !queue[i].Held {
				rt.Fatalf("ticket %d of %+v is granted and not held", i, queue)
			}
			if queue[i].Held && !granted && queue[i].Limit == 0 {
				rt.Fatalf("ticket %d of %+v is held and not granted", i, queue)
			}
		}
	}
}

func request(rt *rapid.T, id string) driver.Request {
	r := driver.Request{Name: "a", ID: id, Wait: true, TTL: time.Duration(rapid.IntRange(1, 4).Draw(rt, "ttl")) * time.Second}
	if r.Shared = rapid.Bool().Draw(rt, "shared"); r.Shared {
		r.Limit = rapid.IntRange(0, 3).Draw(rt, "limit")
	}
	return r
}

func TestStores(t *testing.T) {
	a, b := memory.Open("x"), memory.Open("x")
	c, d := memory.New(), memory.New()
	e := c.Join()
	try := func(m *memory.Driver) error {
		_, err := m.Acquire(ctx, driver.Request{Name: "n", ID: fmt.Sprintf("%p", m), TTL: time.Minute})
		return err
	}
	for i, want := range map[*memory.Driver]error{a: nil, c: nil, d: nil} {
		if err := try(i); err != want { //nolint:errorlint // nil
			t.Error(err)
		}
	}
	for _, m := range []*memory.Driver{b, e} {
		if err := try(m); err != driver.ErrNotAcquired { //nolint:errorlint // the sentinel itself
			t.Errorf("a client of a shared store: %v", err)
		}
	}
	for _, m := range []*memory.Driver{a, b, c, d, e} {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	f := memory.Open("x") // a new store: the old one ended with its clients
	defer f.Close()
	if err := try(f); err != nil {
		t.Error(err)
	}
}

// A release costs the same with ten waiters and with ten thousand.
func BenchmarkHandOff(b *testing.B) {
	for _, waiters := range []int{10, 10_000} {
		b.Run(fmt.Sprint(waiters), func(b *testing.B) {
			d := memory.New()
			defer d.Close()
			var group sync.WaitGroup
			defer group.Wait()
			waits, cancel := context.WithCancel(ctx)
			defer cancel()
			joined := make(chan struct{})
			join := func(i int) {
				group.Go(func() {
					_, _ = d.Acquire(waits, driver.Request{
						Name: "a", ID: fmt.Sprint(i), Wait: true, TTL: time.Hour,
						Joined: func() { joined <- struct{}{} },
					})
				})
				<-joined
			}
			_, _ = d.Acquire(ctx, driver.Request{Name: "a", ID: "0", TTL: time.Hour})
			for i := range waiters {
				join(i + 1)
			}
			i := 0
			for b.Loop() { // the holder leaves, another one joins at the tail
				_ = d.Release(ctx, driver.Hold{Name: "a", ID: fmt.Sprint(i)})
				i++
				join(i + waiters)
			}
		})
	}
}
