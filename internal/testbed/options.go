package testbed

import (
	"os"
	"testing"
)

// Option changes how a server is started.
type Option func(*options)

type options struct {
	args     []string
	durable  bool
	faults   bool
	replicas int
	evicts   bool
	places   []Place

	certs      *Certs // TLS
	management string // ACL
}

func newOptions(opts []Option) options {
	var o options
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	return o
}

// private reports whether only a server of our own will do.
func (o options) private() bool {
	return o.faults || o.durable || o.evicts || len(o.args) > 0 || o.certs != nil || o.management != ""
}

// Args adds arguments to the server's command line, after the testbed's own.
func Args(args ...string) Option {
	return func(o *options) { o.args = append(o.args, args...) }
}

// Faults asks for a server that can be killed and paused, which one from the
// environment cannot.
func Faults() Option { return func(o *options) { o.faults = true } }

// Durable asks for a server that keeps, through a loss of power, all that it
// has confirmed, and runs as in production. Without it Redis and Consul keep
// nothing when they are killed; the other servers keep everything when they
// are killed, since the operating system still has it, but sync nothing to the
// disk.
func Durable() Option { return func(o *options) { o.durable = true } }

// Kept asks for a Redis that keeps, when it is killed, all that it has confirmed, and
// syncs nothing to the disk: a disk that others keep busy for seconds is no outage of
// the store then. The other servers are so without it, but for Consul.
func Kept() Option { return Args("--appendonly", "yes", "--appendfsync", "no") }

// Evicts lets a Memcached evict items when its memory is full, as it does by default.
func Evicts() Option { return func(o *options) { o.evicts = true } }

// Replicas sets the number of replicas of each primary of a [RedisCluster]: none unless it is given.
func Replicas(n int) Option { return func(o *options) { o.replicas = n } }

// Required reports whether tests start the servers that are installed, and must fail, not skip,
// when they find none: LOCKER_TEST_REQUIRE=1. MySQL, which is not installed by default, is required
// only by LOCKER_TEST_REQUIRE=all.
func Required() bool { return isSet("LOCKER_TEST_REQUIRE") }

func isSet(variable string) bool {
	v := os.Getenv(variable)
	return v != "" && v != "0"
}

// Lacks ends a test for which something is missing on this machine: it fails where
// tests are required, and is skipped elsewhere.
func Lacks(tb testing.TB, what string) {
	tb.Helper()
	if Required() {
		tb.Fatal(what)
	}
	tb.Skip(what)
}

// All reports whether what takes long and changes rarely is to run too:
// LOCKER_TEST_ALL=1, which `make test-all` sets.
func All() bool { return isSet("LOCKER_TEST_ALL") }

// Nightly leaves a test to `make test-all`: it takes long, and what it tests changes
// rarely. why says which change has to run it by hand.
func Nightly(tb testing.TB, why string) {
	tb.Helper()
	if !All() {
		tb.Skip("left to `make test-all` (LOCKER_TEST_ALL=1): " + why)
	}
}
