package memcached_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memcached"
	"github.com/lockerproject/locker/internal/testbed"
)

// What a server that is killed costs, as the package comment says it: locks are lost, holders know of that at their
// next renewal, and tokens grow.
func TestServerKilled(t *testing.T) {
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
		next := take(t, b, "killed", locker.WithTTL(ttl))
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

// One item that is lost is one lock that is lost, and its holder notices.
func TestItemLost(t *testing.T) {
	srv := testbed.Memcached(t, testbed.Faults())
	l := process(t, srv.URL())
	lost, kept := take(t, l, "lost", locker.WithTTL(2*time.Second)), take(t, l, "kept", locker.WithTTL(2*time.Second))
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
	case <-time.After(3 * time.Second):
		t.Error("the holder has not noticed")
	}
	if kept.Err() != nil {
		t.Errorf("the other lock: %v", kept.Err())
	}
}

// A server that may evict is refused, as what it is: no outage.
func TestEvictions(t *testing.T) {
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

// A queue that fills its item refuses tickets, with the reason, and works on.
func TestItemTooLarge(t *testing.T) {
	d, err := open(t.Context(), testbed.SharedMemcached(t).URL()+"?prefix=full")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r := driver.Request{Name: "full", ID: "holder", TTL: time.Minute}
	g, err := d.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	const n = 1800 // more than fit
	waits, cancel := context.WithCancel(t.Context())
	errs := make(chan error, n)
	var waiters sync.WaitGroup
	for i := range n {
		waiters.Go(func() {
			w := driver.Request{Name: "full", ID: fmt.Sprint(i), TTL: time.Minute, Wait: true, Note: strings.Repeat("n", 512)}
			_, err := d.Acquire(waits, w)
			errs <- err
		})
	}
	if err := <-errs; driver.IsUnavailable(err) || !errors.Is(err, driver.ErrNoTicket) || !strings.Contains(fmt.Sprint(err), "the queue is full") {
		t.Errorf("refused with %v", err)
	}
	queue, err := d.Inspect(t.Context(), "full")
	if err != nil || len(queue) < 500 || len(queue) > n {
		t.Errorf("%d tickets, %v", len(queue), err)
	}
	if err := d.Release(t.Context(), r.Hold(g.Token)); err != nil {
		t.Error(err)
	}
	cancel()
	waiters.Wait()
}

// A server with -Y wants a user and a password, which no error shows.
func TestLogin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "users")
	if err := os.WriteFile(file, []byte("me:geheim\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	srv := testbed.Memcached(t, testbed.Faults(), testbed.Args("-Y", file))
	with := func(user string) string { return strings.Replace(srv.URL(), "://", "://"+user, 1) }
	if err := take(t, process(t, with("me:geheim@")), "login").Release(t.Context()); err != nil {
		t.Error(err)
	}
	for _, user := range []string{"", "me:falsch@", "you:geheim@"} {
		_, err := process(t, with(user)).TryAcquire(t.Context(), "login")
		if err == nil || errors.Is(err, locker.ErrUnavailable) || strings.Contains(err.Error(), "geheim") || strings.Contains(err.Error(), "falsch") {
			t.Errorf("user %q: %v", user, err)
		}
	}
}

// Each name is on one server, all servers have names, and the order in which they are given does not matter.
func TestSeveralServers(t *testing.T) {
	e := testbed.MemcachedN(t, 3)
	a := process(t, e.URL())
	addrs := []string{e.Members[2].Addr(), e.Members[0].Addr(), e.Members[1].Addr()}
	b := process(t, "memcached://"+strings.Join(addrs, ","))
	const n = 60
	for i := range n {
		name := fmt.Sprint("name", i)
		k := take(t, a, name)
		if _, err := b.TryAcquire(t.Context(), name); !errors.Is(err, locker.ErrNotAcquired) {
			t.Errorf("%s: %v", name, err)
		}
		defer func() { _ = k.Release(t.Context()) }()
	}
	for _, s := range e.Members {
		if got, err := countKeys(s.Addr(), "locker%3Aq"); err != nil || got < n/10 {
			t.Errorf("%s has %d of %d names (%v)", s.Addr(), got, n, err)
		}
	}
	e.Members[0].Kill() // the names of the others are to be had
	works := 0
	for i := range n {
		if _, err := b.Inspect(t.Context(), fmt.Sprint("name", i)); err == nil {
			works++
		}
	}
	if works < n/3 || works == n {
		t.Errorf("%d of %d names work without a third of the servers", works, n)
	}
	if err := b.Ping(t.Context()); !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("ping without one of the servers: %v", err)
	}
	e.Members[0].Start()
}

func TestNew(t *testing.T) {
	for what, err := range map[string]error{
		"no server":        second(memcached.New(nil)),
		"one server twice": second(memcached.New([]string{"a:1", "a:1"})),
		"a blank prefix":   second(memcached.New([]string{"a:1"}, memcached.WithPrefix("a b"))),
		"a long prefix":    second(memcached.New([]string{"a:1"}, memcached.WithPrefix(strings.Repeat("x", 200)))),
		"no time":          second(memcached.New([]string{"a:1"}, memcached.WithTimeout(0, 0))),
	} {
		if err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
	d, err := memcached.New([]string{"a:1", "b:2"}, nil)
	if err != nil || d.String() != "memcached a:1,b:2" {
		t.Errorf("%v, %v", d, err)
	}
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

func second(_ *memcached.Driver, err error) error { return err }

func TestServerVersion(t *testing.T) {
	d, err := open(t.Context(), testbed.SharedMemcached(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	v, err := d.(driver.ServerVersioner).ServerVersion(t.Context())
	if err != nil || !strings.HasPrefix(v, "Memcached 1.") {
		t.Errorf("%q, %v", v, err)
	}
}

// A server that is started again numbers its items anew: what was read of the one before is not the same, though it
// has the same number.
func TestEarlierServer(t *testing.T) {
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
	if err := a.Release(t.Context(), r.Hold(g.Token)); err != nil { // what a knows now has the number 2
		t.Fatal(err)
	}
	srv.Restart()
	r.ID = "b"
	if g, err = b.Acquire(t.Context(), r); err == nil {
		err = b.Renew(t.Context(), r.Hold(g.Token), time.Minute) // so has this
	}
	if err != nil {
		t.Fatal(err)
	}
	r.ID = "c"
	if _, err := a.Acquire(t.Context(), r); err != driver.ErrNotAcquired { //nolint:errorlint // the sentinel itself
		t.Errorf("acquire of what another process holds: %v", err)
	}
}
