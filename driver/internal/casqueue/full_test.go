package casqueue

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// large is a request whose ticket takes a little more than that many bytes.
func large(id string, bytes int) driver.Request {
	r := request("a", id)
	r.Wait, r.Note = true, strings.Repeat("n", bytes)
	return r
}

// fits queues a ticket, and reports whether there was space.
func (b *bed) fits(e *Engine, r driver.Request) bool {
	b.Helper()
	joined, got := make(chan struct{}), make(chan error, 1)
	r.Joined = func() { close(joined) }
	go func() {
		_, err := e.Acquire(b.Context(), r)
		got <- err
	}()
	select {
	case <-joined:
		return true
	case err := <-got:
		if err != nil && !errors.Is(err, ErrTooLarge) {
			b.Fatal(err)
		}
		return err == nil
	}
}

// A ticket that was refused for want of space is queued after others have left.
func TestSpaceAgain(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		other, _ := b.open()
		b.take(e, request("a", "0"))
		b.waits(e, large("1", 9000))
		for range 2 {
			if b.fits(other, large("2", 2000)) {
				b.Fatal("a ticket that the store cannot have taken is queued")
			}
		}
		b.queue(other, "a") // so that other knows it
		if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
			b.Fatal(err)
		}
		if !b.fits(other, large("2", 2000)) {
			b.Error("refused for what has left the queue")
		}
	})
}

// A process that is refused for want of space, and tries again, finds out that the waiters that take it have died.
func TestSpaceOfTheDead(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		holder, _ := b.open()
		other, _ := b.open()
		r := request("a", "0")
		r.Renewed, r.TTL = false, time.Hour
		b.take(holder, r)
		b.waits(e, large("1", 9000))
		_ = e.Close()
		bound := other.Bounds(10*time.Second).Liveness + time.Second
		for begun := time.Now(); !b.fits(other, large("2", 2000)); time.Sleep(time.Second) {
			if time.Since(begun) > bound {
				b.Fatalf("refused after %v for what the dead take", time.Since(begun))
			}
		}
	})
}

// A holder renews its lease, and a waiter begins its own, even if the queue has no space for another ticket.
func TestLeaseInFullQueue(t *testing.T) {
	for _, renewed := range []bool{true, false} {
		bubble(t, func(b *bed) {
			holder, _ := b.open()
			b.take(holder, request("a", "0"))
			e, p := b.open()
			r := request("a", "1")
			r.Renewed = renewed
			got := b.waits(e, r)
			others, _ := b.open()
			filled := false
			p.with(func(verb, _ string) fault {
				if verb == "put" && !filled {
					filled = true
					for size := b.most; !b.fits(others, large("2", size)); size-- {
						if size == 0 {
							b.Error("no space for one ticket")
							break
						}
					}
				}
				return fine
			})
			if err := holder.Release(b.Context(), driver.Hold{Name: "a", ID: "0"}); err != nil {
				b.Fatal(err)
			}
			if err := <-got; err != nil {
				b.Fatal(err)
			}
			begun := time.Now()
			if err := e.Renew(b.Context(), r.Hold(0), r.TTL); err != nil {
				b.Errorf("renewal in a full queue: %v", err)
			}
			if took := time.Since(begun); took > time.Second {
				b.Errorf("it took %v", took)
			}
		})
	}
}

// full is a store that has no room for the queue of another name.
type full struct {
	*process
	refused int
}

func (s *full) Put(ctx context.Context, key string, value []byte, read Version, keep time.Duration) (Version, error) {
	if read == (Version{}) {
		time.Sleep(time.Millisecond)
		s.refused++
		return read, ErrTooLarge
	}
	return s.process.Put(ctx, key, value, read, keep)
}

// Who asks for a name of which the store has no room for the queue is refused, and asks it once or twice, also if the
// process knows that there is no queue.
func TestNoRoomForAnotherName(t *testing.T) {
	for _, latePuts := range []bool{false, true} {
		bubble(t, func(b *bed) {
			var s *full
			e, _ := b.open(func(o *Options) {
				s = &full{process: o.Store.(*process)}
				o.Store, o.LatePuts = s, latePuts
			})
			b.queue(e, "a")
			ctx, cancel := context.WithTimeout(b.Context(), time.Second)
			defer cancel()
			if _, err := e.Acquire(ctx, request("a", "1")); !errors.Is(err, ErrTooLarge) || s.refused > 2 {
				b.Errorf("late puts %v: %v, after %d requests", latePuts, err, s.refused)
			}
		})
	}
}
