package conformance

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"time"
)

// seedVariable is the environment variable that makes random cases draw what they drew
// in a run that has failed.
const seedVariable = "LOCKER_TEST_SEED"

// random draws what is random in a case, from a seed. It is safe for concurrent use:
// the same seed gives the same numbers, and how they fall to the goroutines of the case
// is up to the scheduler.
type random struct {
	seed uint64

	mu   sync.Mutex
	r    *rand.Rand
	used bool
}

// newRandom takes the seed from the environment, or any.
func newRandom() *random {
	seed, err := strconv.ParseUint(os.Getenv(seedVariable), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	return &random{seed: seed, r: rand.New(rand.NewPCG(seed, 0))}
}

// intN returns a number of [0, n).
func (r *random) intN(n int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.used = true
	return r.r.IntN(n)
}

// upTo returns a duration of [0, d).
func (r *random) upTo(d time.Duration) time.Duration { return time.Duration(r.intN(int(d))) }

// explain adds the seed to the error of a case that has drawn.
func (r *random) explain(err error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil || !r.used {
		return err
	}
	return fmt.Errorf("%w (%s=%d draws the same again)", err, seedVariable, r.seed)
}
