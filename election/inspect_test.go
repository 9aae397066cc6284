package election_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/election"
)

// between is a Locker that calls once before it inspects a note.
type between struct {
	locker.Locker
	once func()
}

func (l *between) Inspect(ctx context.Context, name string) (locker.Queue, error) {
	if strings.Contains(name, "#note/") {
		l.once()
		l.once = func() {}
	}
	return l.Locker.Inspect(ctx, name)
}

// A leader whose term ends while it is inspected is not reported with the note that it had
// before its proclamation.
func TestTermEndsWhileItIsInspected(t *testing.T) {
	b := newBed(t)
	l, _ := b.join()
	for _, next := range []bool{false, true} {
		term, err := candidate(t, l, election.WithID("a"), election.WithNote("first")).Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := term.Proclaim(t.Context(), "second"); err != nil {
			t.Fatal(err)
		}
		other := candidate(t, l, election.WithID("b"), election.WithNote("other"))
		observer := candidate(t, &between{Locker: l, once: func() {
			if err := term.StepDown(t.Context()); err != nil {
				t.Error(err)
			}
			if next {
				if _, err := other.Campaign(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}})
		switch leader, err := observer.Leader(t.Context()); {
		case !next && !errors.Is(err, election.ErrNoLeader):
			t.Errorf("nobody leads, and the observer sees %+v, %v", leader, err)
		case next && (err != nil || leader.Owner != "b" || leader.Note != "other"):
			t.Errorf("b leads, and the observer sees %+v, %v", leader, err)
		}
	}
}
