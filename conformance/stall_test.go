package conformance_test

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/conformance/internal/mutant"
	"github.com/lockerproject/locker/internal/testbed"
)

// stallLength is most of the second that the suite allows a loaded machine. The rest is
// for what a driver does then, such as asking again.
const stallLength = 700 * time.Millisecond

// TestStall runs each case on a store that has no bug and once, at a random request,
// does not answer for most of a second: that is no fault of a driver, so no case
// may fail. Such a case would fail now and then on a busy machine.
func TestStall(t *testing.T) {
	times := 4
	if testbed.All() {
		times = 40
	}
	for _, c := range conformance.Cases() {
		t.Run(c.String(), func(t *testing.T) {
			if c.String() != "leaks/goroutines" { // it counts those of all
				t.Parallel()
			}
			requests := stalled(t, c, 0)
			for range times {
				stalled(t, c, 1+rand.IntN(requests+1))
			}
		})
	}
}

// stalled runs a case on a store that does not answer for a moment, from its n-th
// request, and returns how many requests there were.
func stalled(t *testing.T, c conformance.Case, n int) (requests int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := mutant.New(mutant.None)
		s.Stall(n, stallLength)
		err := c.Run(t.Context(), harnessOf(s))
		if err != nil {
			t.Errorf("with a stall of %v at request %d of about %d: %v", stallLength, n, s.Requests(), err)
		}
		requests = s.Requests()
	})
	return requests
}

// TestEndlessStall runs each case on a store that answers nothing from a random request on:
// the case may fail, and must not take the program with it.
func TestEndlessStall(t *testing.T) {
	for _, c := range conformance.Cases() {
		t.Run(c.String(), func(t *testing.T) {
			if c.String() != "leaks/goroutines" { // it counts those of all
				t.Parallel()
			}
			requests := stalled(t, c, 0)
			for range 4 {
				synctest.Test(t, func(t *testing.T) {
					s := mutant.New(mutant.None)
					s.Stall(1+rand.IntN(1+rand.IntN(requests+1)), 24*time.Hour) // most often an early one
					_ = c.Run(t.Context(), harnessOf(s))
					time.Sleep(48 * time.Hour) // what it has left behind ends
				})
			}
		})
	}
}
