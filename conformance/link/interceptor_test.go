package link_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/conformance/link"
)

var (
	_ conformance.Link = (*link.Interceptor)(nil)
	_ conformance.Link = (*link.Proxy)(nil)
)

// access is one access through an Interceptor.
type access struct {
	executed, returned bool
	err                error
}

func pass(ctx context.Context, i *link.Interceptor) *access {
	a := &access{}
	go func() {
		a.err = i.Intercept(ctx, func() error { a.executed = true; return nil })
		a.returned = true
	}()
	synctest.Wait()
	return a
}

func TestInterceptorCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := link.NewInterceptor()
		if a := pass(t.Context(), i); !a.returned || a.err != nil {
			t.Errorf("without a fault: %+v", a)
		}
		i.Cut()
		a := pass(t.Context(), i)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b := pass(ctx, i)
		if a.executed || b.executed {
			t.Error("an access was executed during a cut")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !b.returned || !errors.Is(b.err, context.DeadlineExceeded) || !errors.Is(b.err, link.ErrCut) {
			t.Errorf("an access whose context ended: %+v", b)
		}
		i.Heal()
		synctest.Wait()
		if !a.executed || !a.returned || a.err != nil || b.executed {
			t.Errorf("after Heal: %+v, %+v", a, b)
		}
	})
}

func TestInterceptorDropReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := link.NewInterceptor()
		i.DropReplies(true)
		a := pass(t.Context(), i)
		if !a.executed || a.returned {
			t.Errorf("an access whose reply is lost: %+v", a)
		}
		i.Heal()
		synctest.Wait()
		if !a.returned || !errors.Is(a.err, link.ErrReplyLost) {
			t.Errorf("after Heal: %+v", a)
		}
	})
}

// A reply that is under way when the cut begins arrives after Heal.
func TestInterceptorCutHoldsReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		i := link.NewInterceptor()
		done := make(chan error, 1)
		go func() { done <- i.Intercept(t.Context(), func() error { i.Cut(); return nil }) }()
		synctest.Wait()
		if len(done) != 0 {
			t.Error("the reply came during a cut")
		}
		i.Heal()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
