package testbed

import (
	"errors"
	"fmt"
	"os"
)

// errNone is why a test has no server that nobody asked for.
var errNone = errors.New("LOCKER_TEST_SERVERS is none (the default): `make test` installs and starts all of them")

// mayStart returns nil if tests are to start the servers that are installed, and errNone if
// they are to start none.
func mayStart() error {
	switch v := os.Getenv("LOCKER_TEST_SERVERS"); {
	case v == "installed", v == "" && Required():
		return nil
	case v == "none", v == "":
		return errNone
	default:
		return fmt.Errorf("LOCKER_TEST_SERVERS=%q is neither none nor installed", v)
	}
}
