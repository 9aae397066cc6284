package compose_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/internal/testbed"
)

// The servers that the tests share end with Main; then no goroutine is left.
func TestMain(m *testing.M) {
	code := testbed.Main(m)
	if code == 0 {
		// A goroutine of go-redis dials a server that is down once a second, until a second
		// after the pool was closed.
		dials := goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
		if err := testbed.Leaks(func() error { return goleak.Find(dials) }); err != nil {
			println(err.Error())
			code = 1
		}
	}
	os.Exit(code)
}
