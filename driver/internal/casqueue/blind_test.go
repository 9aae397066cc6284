package casqueue

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// blind is a store that says no version of what was written blindly. It counts such writes, and those that fail.
type blind struct {
	*process
	wrote, changed atomic.Int32
}

func (s *blind) Put(ctx context.Context, key string, value []byte, read Version, keep time.Duration) (Version, error) {
	v, err := s.process.Put(ctx, key, value, read, keep)
	if errors.Is(err, ErrChanged) {
		s.changed.Add(1)
	}
	return v, err
}

func (s *blind) PutBlind(ctx context.Context, key string, value []byte, read Version, keep time.Duration) (Version, error) {
	s.wrote.Add(1)
	v, err := s.Put(ctx, key, value, read, keep)
	v.Number = math.MaxUint64
	if errors.Is(err, ErrChanged) { // it has not read what is there instead
		err = ErrChanged
	}
	return v, err
}

// The first ticket of a process that has to wait is written blindly, and no write fails because of that: neither the next
// ticket, nor a release.
func TestBlind(t *testing.T) {
	bubble(t, func(b *bed) {
		s := &blind{}
		e, _ := b.open(func(o *Options) {
			s.process = o.Store.(*process)
			o.Store = s
		})
		holder, _ := b.open()
		b.take(holder, request("a", "1"))
		first := b.waits(e, request("a", "2"))
		b.waits(e, request("a", "3"))
		b.waits(e, request("a", "4"))
		if err := holder.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
			b.Fatal(err)
		}
		if err := <-first; err != nil {
			b.Fatal(err)
		}
		for _, id := range []string{"2", "4", "3"} {
			if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: id}); err != nil {
				b.Error(err)
			}
		}
		b.take(e, request("b", "5"))
		if s.wrote.Load() != 1 || s.changed.Load() != 0 {
			b.Errorf("%d blind writes of a first waiter; %d writes have failed", s.wrote.Load(), s.changed.Load())
		}
	})
}
