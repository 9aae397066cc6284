package locker_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
)

// A goroutine that waits for Done finds the contexts of the lock ended, also if it asks for
// Done while they end.
func TestDoneComesLast(t *testing.T) {
	for _, early := range []bool{true, false} {
		l := locker.New(memory.New())
		defer l.Close()
		k := acquire(t, l, "a")
		ctxs := make([]context.Context, 1000)
		for i := range ctxs {
			ctxs[i] = k.Context(t.Context())
		}
		if early {
			k.Done()
		}
		alive := make(chan int, 1)
		go func() {
			for !early && k.Err() == nil {
				runtime.Gosched()
			}
			<-k.Done()
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
			t.Errorf("asked for early %v: %d contexts were alive when Done was closed", early, n)
		}
	}
}

// A lock that is logged says which it is, and in which state.
func TestLockString(t *testing.T) {
	l := locker.New(memory.New())
	defer l.Close()
	k := acquire(t, l, "order:42")
	if got, want := fmt.Sprint(k), fmt.Sprintf(`lock "order:42", token %d, held`, k.Token()); got != want {
		t.Errorf("held: %s, want %s", got, want)
	}
	lost := acquire(t, l, "lost")
	if err := l.Break(t.Context(), "lost", lost.Token()); err != nil {
		t.Fatal(err)
	}
	<-lost.Done()
	release(t, k)
	if got, want := fmt.Sprintf("%v; %v", k, lost), fmt.Sprintf(`lock "order:42", token %d, released; lock "lost", token %d, lost`, k.Token(), lost.Token()); got != want {
		t.Errorf("ended: %s, want %s", got, want)
	}
}
