package election_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/memorytest"
)

// Run returns the error of its context when that ends, also in an outage.
func TestEndOfRunInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := memorytest.New(t).Join()
		s.Away.Store(true)
		stop := running(t, candidate(t, l), untilEnd)
		time.Sleep(10 * time.Second)
		if err := stop(); !errors.Is(err, context.Canceled) || !errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	})
}
