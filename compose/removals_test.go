package compose_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// session is a store that keeps a waiting ticket until it is released, as one does whose
// tickets live as long as the session of the process.
type session struct{ *memory.Driver }

func (s session) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	type answer struct {
		g   driver.Grant
		err error
	}
	c := make(chan answer, 1)
	go func() {
		g, err := s.Driver.Acquire(context.WithoutCancel(ctx), r)
		c <- answer{g, err}
	}()
	select {
	case a := <-c:
		return a.g, a.err
	case <-ctx.Done():
		return driver.Grant{}, context.Cause(ctx)
	}
}

// The tickets that a primary in an outage keeps do not hold up the removal of the secondary's.
func TestFallbackRemovesFromTheSecondaryInAnOutage(t *testing.T) {
	for _, fault := range []string{"away", "hangs"} {
		t.Run(fault, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				first, b := &flaky{Driver: memory.New()}, memory.New()
				l := locker.New(compose.Fallback(first, session{b.Join()}))
				for i := range 500 {
					if _, err := l.Acquire(t.Context(), fmt.Sprint(i), locker.WithTTL(10*time.Second)); err != nil {
						t.Fatal(err)
					}
				}
				on := map[string]interface{ Store(bool) }{"away": &first.away, "hangs": &first.hangs}[fault]
				on.Store(true)
				time.Sleep(15 * time.Second) // all are lost
				k := acquire(t, l)
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := l.Acquire(ctx, "x"); err == nil {
					t.Fatal("granted twice")
				}
				for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
					if q, _ := b.Inspect(t.Context(), "x"); len(q) == 1 {
						if d := time.Since(begun); d > 5*time.Second {
							t.Errorf("the ticket of a cancelled wait was left for %v", d)
						}
						break
					}
				}
				release(t, k)
				on.Store(false)
				if err := l.Close(); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				_ = b.Close()
			})
		})
	}
}

// A wait that ends on the first store leaves nothing there while the second is away, which has
// never heard of the ticket.
func TestAllRemovesFromTheFirstInAnOutageOfTheSecond(t *testing.T) {
	for _, fault := range []string{"away", "hangs"} {
		t.Run(fault, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a, second := memory.New(), &flaky{Driver: memory.New()}
				other, l := locker.New(a), locker.New(compose.All(a.Join(), second))
				k := acquire(t, other)
				on := map[string]interface{ Store(bool) }{"away": &second.away, "hangs": &second.hangs}[fault]
				on.Store(true)
				var group sync.WaitGroup
				for range 200 {
					group.Go(func() {
						if _, err := l.Acquire(t.Context(), "x", locker.WithWait(time.Second)); err == nil {
							t.Error("granted twice")
						}
					})
				}
				group.Wait()
				time.Sleep(5 * time.Second)
				if q, err := a.Inspect(t.Context(), "x"); err != nil || len(q) != 1 {
					t.Errorf("%d tickets on the store that answers, 5s after the waits have ended: %v", len(q), err)
				}
				release(t, k)
				on.Store(false)
				time.Sleep(2 * time.Second)
				for _, c := range []*locker.Client{l, other} {
					if err := c.Close(); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// Close shortens a lease of the secondary while the primary does not answer.
func TestFallbackShortensInAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		first, b := &flaky{Driver: memory.New()}, memory.New()
		l, other := locker.New(compose.Fallback(first, b.Join())), locker.New(b)
		k, err := l.Acquire(t.Context(), "y")
		if err != nil {
			t.Fatal(err)
		}
		first.hangs.Store(true)
		_ = k.Release(t.Context()) // not answered
		acquire(t, l, locker.WithMinHold(time.Minute), locker.WithTTL(time.Hour))
		begun := time.Now()
		_ = l.Close()
		release(t, acquire(t, other))
		if d := time.Since(begun); d > time.Minute+time.Second {
			t.Errorf("free on the secondary after %v, want the minimum hold of 1m", d)
		}
		if err := other.Close(); err != nil {
			t.Error(err)
		}
	})
}
