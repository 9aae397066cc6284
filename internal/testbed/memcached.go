package testbed

import (
	"bufio"
	"context"
	"fmt"
	"io"
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
		args := []string{"-l", "127.0.0.1", "-p", strconv.Itoa(n.ports[0]), "-U", "0", "-c", "10000", "-u", "root"}
		return exec.Command(n.bin, append(args, n.opts.args...)...)
	},
	ready: func(ctx context.Context, addr string) error {
		c, err := dialContext(ctx, addr)
		if err != nil {
			return err
		}
		defer c.Close()
		if _, err := io.WriteString(c, "version\r\n"); err != nil {
			return err
		}
		line, err := bufio.NewReader(c).ReadString('\n')
		if err == nil && !strings.HasPrefix(line, "VERSION") {
			err = fmt.Errorf("it answers %q", line)
		}
		return err
	},
	image: image{ref: "memcached:1.6", port: 11211},
}

// Memcached starts a memcached for this test alone. It keeps nothing when it
// is killed.
func Memcached(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	return memcached.private(tb, opts...)
}

// SharedMemcached returns the memcached that all tests of this process share.
func SharedMemcached(tb testing.TB) *Server {
	tb.Helper()
	return memcached.share(tb)
}
