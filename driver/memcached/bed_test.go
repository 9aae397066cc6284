package memcached_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// open opens a driver by URL.
func open(ctx context.Context, url string) (driver.Driver, error) {
	u, err := driver.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return driver.Open(ctx, u)
}

// process opens a Locker as a process of its own would.
func process(t *testing.T, url string, opts ...locker.ClientOption) *locker.Client {
	t.Helper()
	l, err := locker.Open(t.Context(), url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// take acquires a lock that is free, or soon will be.
func take(t *testing.T, l *locker.Client, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	k, err := l.Acquire(t.Context(), name, append(opts, locker.WithWait(20*time.Second))...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// command sends a command to a server and returns the lines of its answer, up to one that begins with last.
func command(addr, cmd, last string) (lines []string, err error) {
	c, err := net.DialTimeout("tcp", addr, 10*time.Second)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := c.Write([]byte(cmd + "\r\n")); err != nil {
		return nil, err
	}
	for s := bufio.NewScanner(c); s.Scan(); {
		switch {
		case strings.HasPrefix(s.Text(), last):
			return lines, nil
		case strings.HasPrefix(s.Text(), "BUSY"):
			return nil, errBusy
		}
		lines = append(lines, s.Text())
	}
	return nil, fmt.Errorf("memcached at %s: no %q in the answer to %s: %q", addr, last, cmd, lines)
}

// errBusy says that the server is already going through its items, for itself or for another client.
var errBusy = errors.New("memcached is busy with its items")

// items describes each item of a server in a line.
func items(addr string) (lines []string, err error) {
	for begun := time.Now(); time.Since(begun) < 10*time.Second; time.Sleep(5 * time.Millisecond) {
		if lines, err = command(addr, "lru_crawler metadump all", "END"); !errors.Is(err, errBusy) {
			break
		}
	}
	return lines, err
}

// countKeys counts the items of a prefix.
func countKeys(addr, prefix string) (n int, err error) {
	lines, err := items(addr)
	for _, line := range lines {
		var key string
		var exp int64
		if _, err := fmt.Sscanf(line, "key=%s exp=%d", &key, &exp); err != nil {
			return 0, fmt.Errorf("%q: %w", line, err)
		}
		if strings.HasPrefix(key, prefix) && (exp < 0 || time.Unix(exp, 0).After(time.Now())) {
			n++
		}
	}
	return n, err
}

// warm is a server that keeps its memory from one start to the next, as Memcached can.
type warm struct {
	*testbed.Server
	t       *testing.T
	memory  string       // the name of its file
	stopped atomic.Int64 // in seconds of the clock
}

func newWarm(t *testing.T) *warm {
	t.Helper()
	memory := filepath.Join(t.TempDir(), "memory")
	return &warm{Server: testbed.Memcached(t, testbed.Faults(), testbed.Args("-A", "-e", memory)), t: t, memory: memory}
}

// Kill ends it so that it keeps its memory.
func (w *warm) Kill() {
	w.t.Helper()
	_, _ = command(w.Addr(), "shutdown graceful", "never") // the connection ends with the server
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		if b, err := os.ReadFile(w.memory + ".meta"); err == nil && strings.Contains(string(b), "mmap_oldbase") {
			break // the server writes this last
		}
		if time.Since(begun) > 20*time.Second {
			w.t.Fatal("memcached does not end")
		}
	}
	w.stopped.Store(time.Now().Unix())
	time.Sleep(20 * time.Millisecond)
	w.Server.Kill()
}

// Start starts it, but not in the second in which it ended: then Memcached would take its memory for damaged.
func (w *warm) Start() {
	w.t.Helper()
	time.Sleep(time.Until(time.Unix(w.stopped.Load()+1, 0)))
	w.Server.Start()
}
