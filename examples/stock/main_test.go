package main

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/examples/internal/scenariotest"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNoPieceIsSoldTwice(t *testing.T) {
	scenariotest.Run(t, run, check)
	t.Run("postgres", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := run(ctx, testbed.SharedPostgres(t).URL())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("\n%v", r)
		check(t, r)
		if f := r.fenced; f == nil || f.sold.Load() != pieces || f.left != 1 || !f.banned {
			t.Errorf("with fencing: %v; want %d sold, the one that came back left, and the late sale refused", f, pieces)
		}
	})
}

func check(t *testing.T, r result) {
	if n := r.without.sold; n <= pieces {
		t.Errorf("without a lock: %d of %d pieces sold: nothing went wrong", n, pieces)
	}
	if s := r.one; s.sold != pieces || s.most != 1 {
		t.Errorf("one lock: %v; want %d sold, one at a time", s, pieces)
	}
	if s := r.striped; s.sold != pieces || s.most < 2 || s.most > segments {
		t.Errorf("%d segments: %v; want %d sold, several at a time", segments, s, pieces)
	}
}
