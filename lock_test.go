package locker_test

import (
	"context"
	"errors"
	"testing"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
)

// A goroutine that waits for Done finds the contexts of the lock ended.
func TestDoneComesLast(t *testing.T) {
	l := locker.New(memory.New())
	defer l.Close()
	k := acquire(t, l, "a")
	ctxs := make([]context.Context, 1000)
	for i := range ctxs {
		ctxs[i] = k.Context(t.Context())
	}
	alive := make(chan int, 1)
	done := k.Done()
	go func() {
		<-done
		n := 0
		for _, ctx := range ctxs {
			if !errors.Is(context.Cause(ctx), locker.ErrReleased) {
				n++
			}
		}
		alive <- n
	}()
	release(t, k)
	if n := <-alive; n > 0 {
		t.Errorf("%d contexts were alive when Done was closed", n)
	}
}
