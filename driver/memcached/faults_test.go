package memcached_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memcached"
	"github.com/lockerproject/locker/internal/testbed"
)

// When a server is killed, its locks are lost, holders notice at their next renewal, and tokens grow.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	srv := testbed.Memcached(t, testbed.Faults())
	const ttl = 3 * time.Second
	a, b := process(t, srv.URL()), process(t, srv.URL())
	last := uint64(0)
	for range 3 {
		k := take(t, a, "killed", locker.WithTTL(ttl))
		if k.Token() <= last {
			t.Errorf("token %d after %d", k.Token(), last)
		}
		srv.Restart()
		begun := time.Now()
		next := take(t, b, "killed")
		granted := time.Since(begun)
		if next.Token() <= k.Token() {
			t.Errorf("token %d, and %d before the server was killed", next.Token(), k.Token())
		}
		select {
		case <-k.Done():
		case <-time.After(ttl/3 + 2*time.Second):
			t.Errorf("the holder has not noticed")
		}
		t.Logf("token %d before, %d after; granted %v, and noticed %v after the server was back",
			k.Token(), next.Token(), granted, time.Since(begun))
		if err := k.Err(); !errors.Is(err, locker.ErrLost) {
			t.Error(err)
		}
		last = next.Token()
		if err := next.Release(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// A lost item is one lost lock, and its holder notices.
func TestItemLost(t *testing.T) {
	t.Parallel()
	srv := testbed.Memcached(t, testbed.Faults())
	l := process(t, srv.URL())
	const ttl = 6 * time.Second // both are renewed at once
	lost, kept := take(t, l, "lost", locker.WithTTL(ttl)), take(t, l, "kept", locker.WithTTL(ttl))
	other := process(t, srv.URL())
	lines, err := items(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range lines {
		var key string
		_, _ = fmt.Sscanf(line, "key=%s", &key)
		found, err := command(srv.Addr(), "get "+strings.NewReplacer("%3A", ":").Replace(key), "END")
		if err != nil {
			t.Fatal(err)
		}
		if len(found) > 1 && strings.Contains(found[1], `"lost"`) {
			if _, err := command(srv.Addr(), "delete "+strings.NewReplacer("%3A", ":").Replace(key), "DELETED"); err != nil {
				t.Fatal(err)
			}
		}
	}
	next, err := other.TryAcquire(t.Context(), "lost")
	if err != nil || next.Token() <= lost.Token() {
		t.Fatalf("token %v after %d (%v)", next, lost.Token(), err)
	}
	select {
	case <-lost.Done():
	case <-time.After(ttl/3 + 2*time.Second):
		t.Error("the holder has not noticed")
	}
	if kept.Err() != nil {
		t.Errorf("the other lock: %v", kept.Err())
	}
}

// A server that may evict is refused, and that is no outage.
func TestEvictions(t *testing.T) {
	t.Parallel()
	url := testbed.Memcached(t, testbed.Evicts()).URL()
	l := process(t, url)
	if _, err := l.TryAcquire(t.Context(), "a"); err == nil || errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "-M") {
		t.Errorf("a server that may evict: %v", err)
	}
	if err := l.Ping(t.Context()); err == nil {
		t.Error("ping: no error")
	}
	if _, err := process(t, url+"?evictions=accept").TryAcquire(t.Context(), "a"); err != nil {
		t.Errorf("accepted: %v", err)
	}
}

// A server without compare-and-swap, which would do no release, is refused, and that is no outage.
func TestNoCAS(t *testing.T) {
	t.Parallel()
	l := process(t, testbed.Memcached(t, testbed.Args("-C")).URL())
	if _, err := l.TryAcquire(t.Context(), "a"); err == nil || errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "-C") {
		t.Errorf("a server without compare-and-swap: %v", err)
	}
}

// A queue that fills its item refuses tickets, with the reason, and works on.
func TestItemTooLarge(t *testing.T) {
	t.Parallel()
	d, err := open(t.Context(), testbed.Memcached(t, testbed.Args("-I", "512k")).URL()+"?timeout=20s")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r := driver.Request{Name: "full", ID: "holder", TTL: time.Minute}
	g, err := d.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	const n = 600 // more than fit
	long := strings.Repeat("x", 512)
	waits, cancel := context.WithCancel(t.Context())
	errs := make(chan error, n)
	var waiters sync.WaitGroup
	for i := range n {
		waiters.Go(func() {
			w := driver.Request{Name: "full", ID: fmt.Sprint(i), TTL: time.Minute, Wait: true, Owner: long, Note: long}
			_, err := d.Acquire(waits, w)
			errs <- err
		})
	}
	if err := <-errs; driver.IsUnavailable(err) || !errors.Is(err, driver.ErrNoTicket) || !strings.Contains(fmt.Sprint(err), "the queue is full") {
		t.Errorf("refused with %v", err)
	}
	queue, err := d.Inspect(t.Context(), "full")
	if err != nil || len(queue) < n/4 || len(queue) > n {
		t.Errorf("%d tickets, %v", len(queue), err)
	}
	if err := d.Release(t.Context(), r.Hold(g.Token)); err != nil {
		t.Error(err)
	}
	cancel()
	waiters.Wait()
}

// A server whose memory is full, and which evicts nothing, refuses what it has no space for. It keeps the locks that it
// has, even the one whose queue was to be written.
func TestMemoryFull(t *testing.T) {
	t.Parallel()
	srv := testbed.Memcached(t, testbed.Args("-m", "2", "-n", "200", "-f", "2"))
	a, err := open(t.Context(), srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := open(t.Context(), srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r := driver.Request{Name: "n", ID: "a", TTL: time.Hour}
	g, err := a.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	fill(t, srv.Addr())
	for i := range 3 {
		w := driver.Request{Name: "n", ID: fmt.Sprint("b", i), TTL: time.Minute, Wait: true, Note: strings.Repeat("n", 500)}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		_, err := b.Acquire(ctx, w)
		cancel()
		if !driver.IsUnavailable(err) || !strings.Contains(err.Error(), "out of memory") {
			t.Errorf("acquire of what another process holds, without memory for a waiter: %v", err)
		}
	}
	if queue, err := b.Inspect(t.Context(), "n"); err != nil || len(queue) != 1 || queue[0].Token != g.Token {
		t.Errorf("queue %v, %v, want the holder with token %d", queue, err, g.Token)
	}
}

// fill writes items of all sizes until the server has no memory for more.
func fill(t *testing.T, addr string) {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	answers := bufio.NewReader(c)
	n := 0
	for size := 16; size < 4096; size += size/16 + 1 {
		for line := "STORED"; line == "STORED"; n++ {
			if _, err := fmt.Fprintf(c, "set fill%d 0 0 %d\r\n%s\r\n", n, size, strings.Repeat("x", size)); err != nil {
				t.Fatal(err)
			}
			if line, err = answers.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			line = strings.TrimSpace(line)
		}
	}
	t.Logf("%d items fill the server", n)
}

// A server that is started again numbers its items anew: an item with a number that was read before may have another
// content.
func TestEarlierServer(t *testing.T) {
	t.Parallel()
	srv := testbed.Memcached(t, testbed.Faults())
	a, err := open(t.Context(), srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := open(t.Context(), srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	r := driver.Request{Name: "n", ID: "a", TTL: time.Minute}
	g, err := a.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Release(t.Context(), r.Hold(g.Token)); err != nil { // the item that a knows has the number 2
		t.Fatal(err)
	}
	srv.Restart()
	r.ID = "b"
	if g, err = b.Acquire(t.Context(), r); err == nil {
		err = b.Renew(t.Context(), r.Hold(g.Token), time.Minute) // so has this item
	}
	if err != nil {
		t.Fatal(err)
	}
	r.ID = "c"
	if _, err := a.Acquire(t.Context(), r); err != driver.ErrNotAcquired { //nolint:errorlint // the sentinel itself
		t.Errorf("acquire of what another process holds: %v", err)
	}
}

// A write is done even if another process overwrites the item before its CAS was read; and the next write does not
// undo that of the other process.
func TestWrittenOver(t *testing.T) {
	t.Parallel()
	url := testbed.SharedMemcached(t).URL() + "?prefix=over"
	other, err := open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	reader := func(id string) driver.Request {
		return driver.Request{Name: "n", ID: id, TTL: time.Minute, Shared: true}
	}
	between := sync.OnceFunc(func() {
		for begun := time.Now(); ; { // until the write has been done
			if queue, err := other.Inspect(t.Context(), "n"); err != nil || len(queue) > 0 || time.Since(begun) > 5*time.Second {
				break
			}
		}
		if _, err := other.Acquire(t.Context(), reader("other")); err != nil {
			t.Error(err)
		}
	})
	d, err := memcached.New([]string{testbed.SharedMemcached(t).Addr()}, memcached.WithPrefix("over"),
		memcached.WithDialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			return &splitConn{c, between}, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, id := range []string{"first", "second"} {
		if _, err := d.Acquire(t.Context(), reader(id)); err != nil {
			t.Fatal(err)
		}
	}
	var ids []string
	queue, err := other.Inspect(t.Context(), "n")
	for _, ticket := range queue {
		ids = append(ids, ticket.ID)
	}
	if err != nil || strings.Join(ids, " ") != "first other second" {
		t.Errorf("queue %q, %v", ids, err)
	}
}

// splitConn does something between a write on condition and the reading that is sent with it.
type splitConn struct {
	net.Conn
	between func()
}

func (c *splitConn) Write(p []byte) (int, error) {
	i := bytes.LastIndex(p, []byte("mg "))
	if i < 0 || !bytes.HasPrefix(p, []byte("add ")) {
		return c.Conn.Write(p)
	}
	if n, err := c.Conn.Write(p[:i]); err != nil {
		return n, err
	}
	c.between()
	n, err := c.Conn.Write(p[i:])
	return i + n, err
}
