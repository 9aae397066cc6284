package memcached_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memcached"
	"github.com/lockerproject/locker/internal/testbed"
)

// A server with -Y wants a user and a password, which no error shows.
func TestLogin(t *testing.T) {
	t.Parallel()
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
	t.Parallel()
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
	e.Members[0].Kill() // the names of the others can be used
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
	t.Parallel()
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
	t.Parallel()
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
