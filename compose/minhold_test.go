package compose_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver/memory"
)

// A lock that one of several stores has lost is kept on the others for its minimum hold.
func TestMinimumHoldOutlastsTheLossOfAPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := memory.New(), memory.New()
		l := locker.New(compose.All(a, b))
		defer l.Close()
		other := locker.New(compose.All(a.Join(), b.Join()))
		defer other.Close()
		k, err := l.Acquire(t.Context(), "x", locker.WithMinHold(time.Hour), locker.WithTTL(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		if err := b.Break(t.Context(), "x", k.Token()); err != nil {
			t.Fatal(err)
		}
		<-k.Done()
		if _, err := other.Acquire(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begun); d < time.Hour || d > time.Hour+time.Second {
			t.Errorf("granted to another after %v of an hour", d)
		}
	})
}
