//go:build !unix

package testbed

import (
	"errors"
	"net"
	"os/exec"
	"testing"
	"time"
)

// Where there are no Unix processes, servers come from the environment.

var watch watcher

type watcher struct{}

func (watcher) send(string, ...any) {}

// Port returns a port of the loopback that nothing listens on.
func Port(tb testing.TB) int {
	tb.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("testbed: %v", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func releasePort(int) {}

func (n *node) reserve(*kind) error { return errors.ErrUnsupported }

func startWatched(*exec.Cmd) error       { return errors.ErrUnsupported }
func endWatched(*exec.Cmd, func()) error { return errors.ErrUnsupported }
func freeze(int) error                   { return errors.ErrUnsupported }
func thaw(int)                           {}
func gone(int) bool                      { return true }

func serverUser(names ...string) string { return names[0] }

func asUser(*exec.Cmd, string) error { return nil }
func giveTo(string, string) error    { return nil }

// processorTime is not known here.
func processorTime() time.Duration { return 0 }
