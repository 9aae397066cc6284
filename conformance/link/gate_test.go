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
	_ conformance.Link = (*link.Gate)(nil)
	_ conformance.Link = (*link.Proxy)(nil)
)

// access is one access through a gate, under way.
type access struct {
	executed, returned bool
	err                error
}

func pass(ctx context.Context, g *link.Gate) *access {
	a := &access{}
	go func() {
		a.err = g.Pass(ctx, func() error { a.executed = true; return nil })
		a.returned = true
	}()
	synctest.Wait()
	return a
}

func TestGateCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := link.NewGate()
		if a := pass(t.Context(), g); !a.returned || a.err != nil {
			t.Errorf("through an open gate: %+v", a)
		}
		g.Cut()
		a := pass(t.Context(), g)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		b := pass(ctx, g)
		if a.executed || b.executed {
			t.Error("a cut gate lets an access through")
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if !b.returned || !errors.Is(b.err, context.DeadlineExceeded) || !errors.Is(b.err, link.ErrCut) {
			t.Errorf("an access whose context ended: %+v", b)
		}
		g.Heal()
		synctest.Wait()
		if !a.executed || !a.returned || a.err != nil || b.executed {
			t.Errorf("after Heal: %+v, %+v", a, b)
		}
	})
}

func TestGateDropReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := link.NewGate()
		g.DropReplies(true)
		a := pass(t.Context(), g)
		if !a.executed || a.returned {
			t.Errorf("an access whose reply is lost: %+v", a)
		}
		g.Heal()
		synctest.Wait()
		if !a.returned || !errors.Is(a.err, link.ErrReplyLost) {
			t.Errorf("after Heal: %+v", a)
		}
	})
}

// A reply that is on its way when the gate is cut arrives after Heal.
func TestGateCutHoldsReplies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := link.NewGate()
		done := make(chan error, 1)
		go func() { done <- g.Pass(t.Context(), func() error { g.Cut(); return nil }) }()
		synctest.Wait()
		if len(done) != 0 {
			t.Error("the reply passed a cut gate")
		}
		g.Heal()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
