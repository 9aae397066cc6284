package testbed

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

var memcached = &kind{
	name:   "memcached",
	scheme: "memcached",
	ports:  1,
	find:   func() (string, error) { return lookup([]string{"memcached"}, "/usr/bin") },
	command: func(n *node) *exec.Cmd {
		args := []string{
			"-l", "127.0.0.1", "-p", strconv.Itoa(n.ports[0]), "-U", "0", "-u", "root", "-c", "15000", "-m", "64",
		}
		if !n.opts.evicts {
			args = append(args, "-M")
		}
		return exec.Command(n.bin, append(append(args, n.args...), n.opts.args...)...)
	},
	ready: func(ctx context.Context, addr string, _ options) error {
		answer, err := memcachedVersion(ctx, addr)
		if err == nil && !strings.HasPrefix(answer, "VERSION ") && !strings.HasPrefix(answer, "CLIENT_ERROR unauthenticated") {
			err = fmt.Errorf("memcached answers %q", answer)
		}
		return err
	},
}

// Memcached starts a Memcached for this test alone, which evicts nothing, unless
// [Evicts] says so. It listens on loopback, loses everything when it is killed, and is killed when the test ends.
var Memcached = memcached.private

// SharedMemcached returns the Memcached that all tests of this process share. They must
// use names of their own, and not stop it.
var SharedMemcached = memcached.share

// MemcachedN starts n separate Memcached servers.
func MemcachedN(tb testing.TB, n int, opts ...Option) *Ensemble {
	tb.Helper()
	e := newEnsemble(tb, memcached, n, opts, nil)
	e.begin()
	return e
}

// memcachedVersion asks for the version, and returns the first line of the answer. A server that wants a password refuses
// "quit", too, so the connection is closed here.
func memcachedVersion(ctx context.Context, addr string) (string, error) {
	c, err := dialContext(ctx, addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := c.Write([]byte("version\r\n")); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}
