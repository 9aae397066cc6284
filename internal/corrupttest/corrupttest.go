// Package corrupttest tests what a driver does beside a corrupt entry in a real queue.
package corrupttest

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker"
)

// within is enough for a store that answers on a busy machine.
const within = 2 * time.Second

// NotGranted fails if anybody is granted past a corrupt entry in the queue of name: an exclusive or a shared lock, at
// once or after a wait. The entry counts as a ticket, which Inspect shows, or each call fails with an error that has
// key in it, the name of the entry in the store.
func NotGranted(t *testing.T, l *locker.Client, name, key string) {
	t.Helper()
	queue, inspected := l.Inspect(t.Context(), name)
	if inspected == nil && len(queue.Tickets) == 0 {
		t.Errorf("inspect hides the entry %q", key)
	}
	_, exclusive := l.TryAcquire(t.Context(), name, locker.WithoutReentry())
	_, shared := l.TryAcquire(t.Context(), name, locker.WithoutReentry(), locker.Limit(1))
	_, waited := l.Acquire(t.Context(), name, locker.WithoutReentry(), locker.WithWait(within))
	for what, err := range map[string]error{"inspect": inspected, "exclusive": exclusive, "shared": shared, "waited": waited} {
		switch {
		case err == nil && what != "inspect":
			t.Errorf("%s: granted past %q", what, key)
		case err != nil && !errors.Is(err, locker.ErrNotAcquired) && (errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), key)):
			t.Errorf("%s: %v, want an error that names %q", what, err, key)
		}
	}
	if _, err := l.List(t.Context()); err != nil && !errors.Is(err, locker.ErrUnsupported) && !strings.Contains(err.Error(), key) {
		t.Errorf("list: %v, want an error that names %q", err, key)
	}
}
