package testbed

import (
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
)

// Rand returns numbers for a random test, from a seed that the test names if it fails;
// LOCKER_TEST_SEED repeats them. It is not safe for concurrent use.
func Rand(tb testing.TB) *rand.Rand {
	tb.Helper()
	seed, err := strconv.ParseUint(os.Getenv("LOCKER_TEST_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("LOCKER_TEST_SEED=%d draws the same again", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}
