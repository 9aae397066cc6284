// Package testbed starts real servers for tests, and injects faults into them.
//
//	func TestMain(m *testing.M) { testmain.Run(m) } // also looks for goroutines that are left
//
//	func TestSomething(t *testing.T) {
//		srv := testbed.SharedRedis(t) // one for the whole test process
//		…srv.URL()…
//	}
//
//	func TestOutage(t *testing.T) {
//		srv := testbed.Redis(t, testbed.Faults()) // this test's own
//		srv.Kill()
//		srv.Start() // the same port, the same data folder
//	}
//
// A test uses the first of these servers that is available:
//
//  1. the one whose address is in the environment: LOCKER_TEST_REDIS_URL,
//     LOCKER_TEST_ETCD_URL, … It belongs to somebody else and is never killed or
//     paused: tests that need [Faults], [Args] or an ensemble do not use it (the
//     conformance suite runs on all of them in driver/all);
//  2. with LOCKER_TEST_REQUIRE=1, a binary on this machine, started on a free
//     port of the loopback with a data folder of its own. It is searched for in PATH,
//     where Debian installs binaries, and in ${XDG_CACHE_HOME:-$HOME/.cache}/locker/bin,
//     for those that scripts/install-servers.sh has built.
//
// If there is none, the test fails with a message that says how to install one. Without
// LOCKER_TEST_REQUIRE it is skipped (see [Required]): `go test ./...` takes a minute.
//
// The servers that this package starts, and their data, are removed when the test
// process ends, however it ends: a small watcher process does so. No goroutine is left, so
// tests may look for leaks (package testmain): the Cleanup of a test stops what was started for it, and shared
// servers have no goroutines.
//
// Unless a test needs [Durable], servers run with less durability and more speed, and on
// Linux with their data in memory, if there are 4 GB of room and TMPDIR says nothing else.
package testbed
