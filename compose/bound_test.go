package compose_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// lastMoment is a store that reports a ticket as queued when the patience is over.
type lastMoment struct{ *memory.Driver }

func (d lastMoment) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	<-ctx.Done()
	r.Joined()
	return driver.Grant{}, context.Cause(ctx)
}

// If the primary reports the ticket as queued too late, that does not lift the bound for
// the secondary's answer.
func TestFallbackBoundsTheSecondary(t *testing.T) {
	bubble(t, func(t *testing.T) {
		second := &flaky{Driver: memory.New()}
		second.hangs.Store(true)
		l := locker.New(compose.Fallback(lastMoment{memory.New()}, second))
		defer l.Close()
		defer second.hangs.Store(false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		begun := time.Now()
		_, err := l.Acquire(ctx, "x")
		if took := time.Since(begun); !errors.Is(err, locker.ErrUnavailable) || took > locker.DefaultAnswerTimeout+100*time.Millisecond {
			t.Errorf("%v after %v", err, took)
		}
	})
}
