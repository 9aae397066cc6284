package postgres_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
)

// unique is a prefix or a name that nobody else uses.
func unique() string { return "t" + strings.ToLower(rand.Text())[:12] }

// newPool opens a pool that ends with the test.
func newPool(t testing.TB, url string, change func(*pgxpool.Config)) *pgxpool.Pool {
	t.Helper()
	c, err := pgxpool.ParseConfig(url)
	ok(t, err)
	if change != nil {
		change(c)
	}
	p, err := pgxpool.NewWithConfig(t.Context(), c)
	ok(t, err)
	t.Cleanup(p.Close)
	return p
}

// newDriver makes a driver over a pool of its own.
func newDriver(t testing.TB, url string, opts ...postgres.Option) (*postgres.Driver, *pgxpool.Pool) {
	t.Helper()
	p := newPool(t, url, nil)
	d, err := postgres.New(p, opts...)
	ok(t, err)
	t.Cleanup(func() { ok(t, d.Close()) })
	return d, p
}

func newLocker(t *testing.T, d driver.Driver) *locker.Client {
	t.Helper()
	l := locker.New(d)
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// renewals has the token of each lease that a client has renewed.
type renewals chan uint64

// newRenewing is newLocker, with the client's renewals.
func newRenewing(t *testing.T, d driver.Driver) (*locker.Client, renewals) {
	t.Helper()
	r := make(renewals, 1000)
	l := locker.New(d, locker.WithObserver(func(_ context.Context, e locker.Event) {
		if e.Kind == locker.EventRenewed {
			r <- e.Token
		}
	}))
	t.Cleanup(func() { _ = l.Close() })
	return l, r
}

// await waits until each lease was renewed twice: the first time may have been before what the test has done to it.
func (r renewals) await(t *testing.T, locks ...*locker.Lock) {
	t.Helper()
	left := make(map[uint64]int)
	for _, k := range locks {
		left[k.Token()] = 2
	}
	for late := time.After(20 * time.Second); len(left) > 0; {
		select {
		case token := <-r:
			if left[token]--; left[token] <= 0 { // or it is of another lease
				delete(left, token)
			}
		case <-late:
			t.Fatalf("not renewed twice in 20 s: %v", left)
		}
	}
	for _, k := range locks {
		ok(t, k.Err())
	}
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func is(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("the error is %v, want %v", err, want)
	}
}

// waitFor waits until a condition is true.
func waitFor(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(15 * time.Second); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 15 s: %s", what)
		}
	}
}

// queued waits until n tickets are queued.
func queued(t *testing.T, l *locker.Client, name string, n int) {
	t.Helper()
	waitFor(t, fmt.Sprintf("%d tickets in the queue", n), func() bool {
		queue, err := l.Inspect(t.Context(), name)
		return err == nil && len(queue.Tickets) == n
	})
}

// async acquires in the background.
func async(t *testing.T, l *locker.Client, name string, opts ...locker.Option) <-chan *locker.Lock {
	t.Helper()
	c := make(chan *locker.Lock, 1)
	go func() {
		defer close(c)
		k, err := l.Acquire(t.Context(), name, opts...)
		if err != nil {
			t.Error(err)
			return
		}
		c <- k
	}()
	return c
}

// got waits for what async has acquired.
func got(t *testing.T, c <-chan *locker.Lock) *locker.Lock {
	t.Helper()
	select {
	case k := <-c:
		if k == nil {
			t.FailNow()
		}
		return k
	case <-time.After(20 * time.Second):
		t.Fatal("not acquired in 20 s")
		return nil
	}
}

// contend increases a counter under a lock, from all of ls.
func contend(t *testing.T, ls []*locker.Client, times int) {
	t.Helper()
	var (
		group  sync.WaitGroup
		inside atomic.Int32
		last   atomic.Uint64
		name   = unique()
	)
	for _, l := range ls {
		group.Go(func() {
			for range times {
				k, err := l.Acquire(t.Context(), name)
				if err != nil {
					t.Error(err)
					return
				}
				if n := inside.Add(1); n != 1 {
					t.Errorf("%d inside at once", n)
				}
				if was := last.Swap(k.Token()); was >= k.Token() {
					t.Errorf("token %d after %d", k.Token(), was)
				}
				inside.Add(-1)
				if err := k.Release(t.Context()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}
