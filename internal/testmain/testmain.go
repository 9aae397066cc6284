// Package testmain is the TestMain of packages whose tests use real servers.
package testmain

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/internal/testbed"
)

// endWait is how long goroutines may still run after the tests: ZooKeeper's client waits a second for a server that is
// down after its Close, and go-redis dials such a server once more.
const endWait = 3 * time.Second

// Run runs the tests, or the function of a child process (testbed.Child). Then it waits until no goroutine is left, and
// exits.
func Run(m *testing.M) { RunWithin(m, endWait) }

// RunWithin is Run for tests after which goroutines may run for longer.
func RunWithin(m *testing.M, wait time.Duration) {
	code := testbed.Main(m)
	if code == 0 {
		if err := leaks(wait); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// leaks returns the goroutines that do not end, as an error.
func leaks(wait time.Duration) error {
	for end := time.Now().Add(wait); ; {
		if err := goleak.Find(); err == nil || time.Now().After(end) {
			return err
		}
	}
}
