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

// endWait is how long goroutines may still run after the tests. Clients have bounds of their own: after its Close
// ZooKeeper's waits a second for a server that is down, go-redis dials such a server once more, and pgx gives a busy
// server 15 s to answer that a request was cancelled.
const endWait = 20 * time.Second

// Run runs the tests, or the function of a child process (testbed.Child). Then it waits until no goroutine is left, and
// exits.
func Run(m *testing.M) {
	code := testbed.Main(m)
	if code == 0 {
		if err := leaks(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// leaks returns the goroutines that do not end, as an error.
func leaks() error {
	for end := time.Now().Add(endWait); ; {
		if err := goleak.Find(); err == nil || time.Now().After(end) {
			return err
		}
	}
}
