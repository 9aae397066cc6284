package locker_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

// Nothing stays of a call that has returned: no timer, and nothing that its context, its caller's or the Client's keep.
func TestNothingStaysOfACall(t *testing.T) {
	s := newStub()
	s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
		ctx.Done() // starts what bounds the call
		return next(ctx, r)
	}
	l := locker.New(s)
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cycles := func(n int) (heap uint64) {
		for range n {
			k, err := l.Acquire(ctx, "a", locker.WithWait(time.Hour))
			if err != nil {
				t.Fatal(err)
			}
			release(t, k)
		}
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	const n = 5000
	before := cycles(n / 10)
	if after := cycles(n); after > before+n*32 {
		t.Errorf("%d bytes stay of each call", (after-before)/n)
	}
}
