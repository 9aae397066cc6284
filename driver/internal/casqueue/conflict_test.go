package casqueue

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// requests counts the requests of a process about queues, by verb.
func (p *process) requests() (gets, puts *atomic.Int32) {
	gets, puts = new(atomic.Int32), new(atomic.Int32)
	p.with(func(verb, key string) fault {
		switch {
		case !strings.Contains(key, ":q:"):
		case verb == "get":
			gets.Add(1)
		case verb == "put":
			puts.Add(1)
		}
		return fine
	})
	return gets, puts
}

// A process whose write finds that the queue has changed does not read it if the store has said what it has: neither to write
// again, nor to be refused.
func TestChangedIsNotRead(t *testing.T) {
	for _, mute := range []bool{false, true} {
		bubble(t, func(b *bed) {
			b.mute = mute
			want := int32(0)
			if mute {
				want = 1
			}
			e, p := b.open()
			other, _ := b.open()
			b.take(e, request("a", "1"))
			b.waits(other, request("a", "2"))
			gets, puts := p.requests()
			if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
				b.Fatal(err)
			}
			if gets.Load() != want || puts.Load() != 2 {
				b.Errorf("mute %v: a release reads %d times, and writes %d times", mute, gets.Load(), puts.Load())
			}

			b.take(e, request("b", "3"))
			if err := e.Release(b.Context(), driver.Hold{Name: "b", ID: "3"}); err != nil {
				b.Fatal(err)
			}
			b.take(other, request("b", "4"))
			gets, _ = p.requests()
			_, err := e.Acquire(b.Context(), request("b", "5"))
			if !errors.Is(err, driver.ErrNotAcquired) || gets.Load() != want {
				b.Errorf("mute %v: %v, after %d readings", mute, err, gets.Load())
			}
		})
	}
}

// A change that is asked for while such an answer is on its way is not refused by what that has: it may be older.
func TestChangedBeforeTry(t *testing.T) {
	bubble(t, func(b *bed) {
		e, p := b.open()
		other, _ := b.open()
		b.take(e, request("a", "1"))
		if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
			b.Fatal(err)
		}
		b.take(other, request("a", "2"))
		p.once("put", slow)
		ctx, cancel := context.WithCancel(b.Context())
		got := make(chan error)
		go func() {
			_, err := e.Acquire(ctx, request("a", "3"))
			got <- err
		}()
		time.Sleep(10 * time.Millisecond)
		if err := other.Release(b.Context(), driver.Hold{Name: "a", ID: "2"}); err != nil {
			b.Fatal(err)
		}
		cancel()
		b.take(e, request("a", "4"))
		if err := <-got; !errors.Is(err, context.Canceled) {
			b.Error(err)
		}
	})
}
