//go:build !unix

package testbed

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Where there are no Unix processes, servers come from the environment or
// from containers.

type process struct{ instance }

func newProcess(*kind, *node) (*process, error) {
	return nil, errors.New("the testbed starts no processes on this system")
}

var watch watcher

type watcher struct{}

func (watcher) folder() (string, error) { return os.TempDir(), nil }
func (watcher) send(string, ...any)     {}

// Port returns a port of the loopback that nothing listens on.
func Port(tb testing.TB) int {
	tb.Helper()
	port, err := reservePort()
	if err != nil {
		tb.Fatalf("testbed: %v", err)
	}
	return port
}

func reservePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

func releasePort(int) {}

func (n *node) reserve(*kind) error { return errors.ErrUnsupported }

func startWatched(*exec.Cmd) error       { return errors.ErrUnsupported }
func endWatched(*exec.Cmd, func()) error { return errors.ErrUnsupported }
func freeze(int) error                   { return errors.ErrUnsupported }
func thaw(int)                           {}

func asUser(*exec.Cmd, string) error { return nil }
func giveTo(string, string) error    { return nil }

func (k *kind) awaitInstall() (string, error) { return k.find() }

// processorTime is not known here.
func processorTime() time.Duration { return 0 }
