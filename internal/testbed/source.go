package testbed

import (
	"errors"
	"fmt"
	"os"
)

// The values of LOCKER_TEST_SERVERS: where the servers of tests come from, but for those
// whose address is in the environment.
const (
	none       = "none"
	installed  = "installed"
	containers = "containers"
)

// errNone is why a test has no server that nobody asked for.
var errNone = errors.New("LOCKER_TEST_SERVERS is none (the default): `make test` installs and starts all of them")

// source returns where servers come from: installed or containers. It returns errNone
// if no test is to start one.
func source() (string, error) {
	switch v := os.Getenv("LOCKER_TEST_SERVERS"); v {
	case installed, containers:
		return v, nil
	case "":
		if Required() {
			return installed, nil
		}
		return "", errNone
	case none:
		return "", errNone
	default:
		return "", fmt.Errorf("LOCKER_TEST_SERVERS=%q is not %s, %s or %s", v, none, installed, containers)
	}
}
