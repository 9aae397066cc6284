//go:build unix

package testbed

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// Ports are taken from below the range that the system gives to outgoing
// connections: else a client could be given the port of a server that is down
// for a moment, which then cannot start again. A lock on a file keeps other
// test processes off a port while its server is down.
const firstPort, lastPort = 10000, 31999

var portLocks sync.Map // the *os.File of a port

// Port returns a port of the loopback that nothing listens on and that no
// other test gets until tb ends.
func Port(tb testing.TB) int {
	tb.Helper()
	port, err := reservePort()
	if err != nil {
		tb.Fatalf("testbed: %v", err)
	}
	tb.Cleanup(func() { releasePort(port) })
	return port
}

func reservePort() (int, error) {
	dir := filepath.Join(os.TempDir(), "locker-testbed-ports")
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return 0, err
	}
	_ = os.Chmod(dir, 0o777|os.ModeSticky) // for other users' tests; only its owner can
	const n = lastPort - firstPort + 1
	start := rand.IntN(n)
	for i := range n {
		if port := firstPort + (start+i)%n; reserve(dir, port) {
			return port, nil
		}
	}
	return 0, errors.New("no port is free")
}

func reserve(dir string, port int) bool {
	f, err := os.OpenFile(filepath.Join(dir, fmt.Sprint(port)), os.O_CREATE|os.O_RDWR, 0o666)
	if err != nil {
		return false
	}
	if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil || !free(port) {
		_ = f.Close()
		return false
	}
	portLocks.Store(port, f)
	return true
}

// free reports whether nothing listens on a port. It lets no process be started
// meanwhile: that would have the socket too, until it has become another program, and
// keep the port in use for a moment longer.
func free(port int) bool {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return false
	}
	defer syscall.Close(fd)
	// As whoever listens there later does: connections that have ended do not count.
	_ = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	return syscall.Bind(fd, &syscall.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}) == nil
}

func releasePort(port int) {
	if f, locked := portLocks.LoadAndDelete(port); locked {
		_ = f.(*os.File).Close() //nolint:forcetypeassert // nothing else is stored
	}
}
