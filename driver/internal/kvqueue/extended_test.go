package kvqueue

import (
	"errors"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A ticket stays on its session, whatever its renewals ask for, and the grant says how long that is. A
// lease that is not renewed on schedule is over when that time is over since its last renewal (D12).
func TestExtendedStaysOnItsSession(t *testing.T) {
	inBubble(t, func(b *bed) {
		renewed := b.get(b.e, request("a", "1"))
		r := unrenewed("b", "2", 20*time.Second)
		r.MinHold = 30 * time.Second
		for _, r := range []driver.Request{unrenewed("c", "3", 30*time.Second), r} {
			g, err := b.e.Acquire(b.Context(), r)
			if err != nil || g.TTL != 30*time.Second {
				t.Fatalf("%s: a grant of %v, %v, want the session's length", r.ID, g.TTL, err)
			}
			if err := b.e.Renew(b.Context(), r.Hold(g.Token), time.Hour); err != nil {
				t.Errorf("extension: %v", err)
			}
		}
		if moves, opened := b.store.count("move"), b.store.count("open"); moves != 0 || opened != 2 {
			t.Errorf("%d moves, %d sessions", moves, opened)
		}
		time.Sleep(29 * time.Second)
		late := unrenewed("c", "3", 0).Hold(0)
		if err := b.e.Renew(b.Context(), late, time.Hour); err != nil {
			t.Errorf("renewal in time: %v", err)
		}
		for range 2 {
			time.Sleep(16 * time.Second)
			if err := b.e.Renew(b.Context(), renewed, 30*time.Second); err != nil {
				t.Error(err)
			}
		}
		if err := b.e.Renew(b.Context(), late, time.Hour); !errors.Is(err, driver.ErrLost) {
			t.Errorf("renewal of a lease that is over, on a session that lives: %v, want ErrLost", err)
		}
		b.drop(b.e, late)
		b.drop(b.e, renewed)
	})
}
