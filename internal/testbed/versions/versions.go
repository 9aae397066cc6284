// Package versions tests that a driver refuses a store whose data has another protocol
// version, and writes its own version into a store without one.
package versions

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker"
)

// A Store is where a driver keeps its version, seen from outside.
type Store struct {
	// Open opens a Locker on the store; with other one that speaks another version.
	Open  func(t *testing.T, other bool) *locker.Client
	Get   func() string        // the version that is there, or ""
	Set   func(version string) // "" removes it
	Where string               // what an error calls the place
}

// patience is how long anything may take here.
const patience = 10 * time.Second

// Prove tests a driver on a store.
func Prove(t *testing.T, s Store) {
	t.Helper()
	s.Set("from the future")
	l := s.Open(t, false)
	s.refused(t, l)
	s.Set("")
	if _, err := l.Inspect(t.Context(), "a"); err != nil || s.Get() != "" {
		t.Errorf("Inspect where there is nothing: %v, and the version is %q", err, s.Get())
	}
	use(t, l) // without having been opened again
	own := s.Get()
	if own == "" {
		t.Error("the first Acquire has written no version")
	}
	s.Set("")
	use(t, l) // who has seen it need not see it again
	use(t, s.Open(t, false))
	if got := s.Get(); got != own {
		t.Errorf("after the version was removed the next program wrote %q, want %q", got, own)
	}
	s.race(t)
}

func use(t *testing.T, l *locker.Client) {
	t.Helper()
	k, err := l.Acquire(t.Context(), "a", locker.WithWait(patience))
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// refused wants all verbs to say what is wrong and what to do.
func (s Store) refused(t *testing.T, l *locker.Client) {
	t.Helper()
	for verb, f := range map[string]func(context.Context) error{
		"Acquire":    func(ctx context.Context) error { _, err := l.Acquire(ctx, "a"); return err },
		"TryAcquire": func(ctx context.Context) error { _, err := l.TryAcquire(ctx, "a", locker.Shared()); return err },
		"Inspect":    func(ctx context.Context) error { _, err := l.Inspect(ctx, "a"); return err },
		"List":       func(ctx context.Context) error { _, err := l.List(ctx); return err },
		"Break":      func(ctx context.Context) error { return l.Break(ctx, "a", 1) },
		"Ping":       l.Ping,
	} {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		err := f(ctx)
		cancel()
		if !mismatch(err) || !strings.Contains(err.Error(), s.Where) || !strings.Contains(err.Error(), `"from the future"`) ||
			!strings.Contains(err.Error(), "delete that") {
			t.Errorf("%s where another version is: %v", verb, err)
		}
	}
}

// mismatch tells whether an error is one of two versions, and no other.
func mismatch(err error) bool {
	for _, not := range []error{locker.ErrUnavailable, locker.ErrLost, locker.ErrNotAcquired, context.DeadlineExceeded} {
		if errors.Is(err, not) {
			return false
		}
	}
	return err != nil && strings.Contains(err.Error(), "protocol version")
}

// race has programs of two versions begin at once: all of one version work, and
// all of the other are refused.
func (s Store) race(t *testing.T) {
	t.Helper()
	s.Set("")
	const each = 3
	var (
		mu       sync.Mutex
		works    [2]int
		wg       sync.WaitGroup
		programs [2][]*locker.Client
	)
	for kind := range programs {
		for range each {
			programs[kind] = append(programs[kind], s.Open(t, kind == 1))
		}
	}
	for kind, ls := range programs {
		for _, l := range ls {
			wg.Go(func() {
				k, err := l.Acquire(t.Context(), "race", locker.WithWait(patience))
				switch {
				case err == nil:
					err = k.Release(t.Context())
					mu.Lock()
					works[kind]++
					mu.Unlock()
				case mismatch(err):
					err = nil
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	if works != [2]int{each, 0} && works != [2]int{0, each} {
		t.Errorf("of programs of two versions that began at once %d and %d work, want all of one", works[0], works[1])
	}
}
