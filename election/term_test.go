package election_test

import (
	"context"
	"errors"
	"testing"

	"github.com/lockerproject/locker/election"
)

// The contexts of a term have ended when StepDown returns, and because of it, not because
// of the release that follows. So has one that is made afterwards.
func TestCauseOfTheEnd(t *testing.T) {
	l, _ := newBed(t).join()
	e := candidate(t, l)
	for range 100 {
		term, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		before := term.Context(t.Context())
		if err := term.StepDown(t.Context()); err != nil {
			t.Fatal(err)
		}
		for what, ctx := range map[string]context.Context{"before": before, "after": term.Context(t.Context())} {
			if cause := context.Cause(ctx); !errors.Is(cause, election.ErrSteppedDown) {
				t.Fatalf("a context that was made %s StepDown: %v", what, cause)
			}
		}
	}
}
