package locker_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
)

// Test your own code on the memory driver in a bubble of testing/synctest, where an
// hour passes in no time.
func TestYourOwnCode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(memory.New())
		defer l.Close()
		lock, err := l.Acquire(t.Context(), "job", locker.WithTTL(time.Hour), locker.WithoutRenewal())
		if err != nil {
			t.Fatal(err)
		}
		work := lock.Context(t.Context())
		time.Sleep(time.Hour)                                      // the lease ends
		if cause := context.Cause(work); cause != locker.ErrLost { //nolint:errorlint // the sentinel itself
			t.Errorf("the work ended with %v", cause)
		}
	})
}
