package locker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
)

// afterwards is a wrapper that notes each lock under another lock, in the background.
type afterwards struct {
	locker.Locker
	got chan error
}

func (w afterwards) Acquire(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	k, err := w.Locker.Acquire(ctx, name, opts...)
	go func() {
		time.Sleep(3 * time.Second) // AcquireAll has returned long since
		audit, err := w.Locker.Acquire(context.WithoutCancel(ctx), "audit", locker.WithWait(time.Second))
		if err == nil {
			_ = audit.Release(context.Background())
		}
		w.got <- err
	}()
	return k, err
}

// What a wrapper acquires after AcquireAll has returned, with the values of its context, has a wait limit of its own.
func TestLimitOfAGroupEndsWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(newStub())
		defer l.Close()
		w := afterwards{l, make(chan error, 1)}
		k, err := locker.AcquireAll(t.Context(), w, []string{"a"}, locker.WithWait(time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if err := <-w.got; err != nil {
			t.Error(err)
		}
		_ = k.Release(t.Context())
	})
}
