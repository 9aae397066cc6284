// Package testbed gives tests real servers, and the means to break them.
//
//	func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) } // only for tests that use Child
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
// A server is the first of these that works:
//
//  1. the one whose address is in the environment: LOCKER_TEST_REDIS_URL,
//     LOCKER_TEST_ETCD_URL, … It belongs to somebody else, so it cannot be
//     killed or paused: tests that ask for [Faults], for [Args] or for an
//     ensemble pass it over (the conformance suite runs on all of them in
//     driver/all);
//  2. a binary on this machine, started on a free port of the loopback with a
//     data folder of its own. Binaries are looked for in PATH, where Debian
//     puts them, and in ${XDG_CACHE_HOME:-$HOME/.cache}/locker/bin, where
//     scripts/install-servers.sh puts the ones it builds;
//  3. a container, where the docker command finds an engine: the program
//     internal/containers runs it, by testcontainers-go, with the image that
//     docker-compose.yml names. TLS, ACL and most ensembles are not to be had so.
//     LOCKER_TEST_SERVERS=containers leaves out what is installed.
//
// A test that finds none is skipped with the line that says how to get one.
// With LOCKER_TEST_REQUIRE=1 it fails instead (see [Required]).
//
// Servers that this package starts, and their data, are gone when the test
// process is gone, however it ended: a small watcher process, and one for each
// container, outlive it by a moment to see to that. Nothing here leaves a goroutine running, so tests may
// look for leaks: what is started for one test is stopped by its Cleanup, and
// shared servers have none.
//
// Servers trade durability for speed unless asked for [Durable].
package testbed
