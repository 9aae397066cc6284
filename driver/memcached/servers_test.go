package memcached_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver/internal/casqueue"
	"github.com/lockerproject/locker/driver/memcached"
	"github.com/lockerproject/locker/internal/testbed"
)

// asked returns the address at which a name is looked for, of servers that are spelled like this.
func asked(t *testing.T, servers []string, name string) (addr string) {
	t.Helper()
	d, err := memcached.New(servers, memcached.WithDialer(func(_ context.Context, _, at string) (net.Conn, error) {
		addr = at
		return nil, errors.New("no server")
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Inspect(t.Context(), name); err == nil {
		t.Fatal("no error")
	}
	return addr
}

// Lists that are spelled differently and mean the same servers put each name on the same one.
func TestSpelling(t *testing.T) {
	t.Parallel()
	lists := [][]string{
		{"cache1:11211", "cache2:11211", "[::1]:11211", "10.0.0.1:11212"},
		{"10.0.0.1:11212", "[::1]:11211", "cache2:11211", "cache1:11211"},
		{"cache1", "CACHE2", "[0:0::0001]", "[::ffff:10.0.0.1]:11212"},
		{"Cache1:011211", "cache2:11211", "::1", "10.0.0.1:11212"},
	}
	for i := range 50 {
		name := fmt.Sprint("name", i)
		want := asked(t, lists[0], name)
		for _, list := range lists[1:] {
			if got := asked(t, list, name); got != want {
				t.Errorf("%q: %s asks %s, and %s asks %s", name, lists[0], want, list, got)
			}
		}
	}
	for _, twice := range [][]string{{"cache1", "cache1:11211"}, {"Cache1:11211", "cache1:11211"}, {"::1", "[::0001]:11211"}} {
		if _, err := memcached.New(twice); err == nil || !strings.Contains(err.Error(), "twice") {
			t.Errorf("%s: %v", twice, err)
		}
	}
	if got := asked(t, []string{"/run/memcached.sock"}, "a"); got != "/run/memcached.sock" {
		t.Errorf("an address for the program's own dialer has become %s", got)
	}
}

// The server's clock does not run faster than this machine's, and a server that is started again has another one.
func TestClock(t *testing.T) {
	t.Parallel()
	srv := testbed.Memcached(t, testbed.Faults())
	d, err := memcached.New([]string{srv.Addr()})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	read := func() casqueue.Time {
		t.Helper()
		now, err := d.Clock().Time(t.Context())
		if err != nil || now.Clock == "" {
			t.Fatalf("%+v, %v", now, err)
		}
		return now
	}
	begun := time.Now()
	first := read()
	const pause = 4 * time.Second
	time.Sleep(pause)
	second := read()
	passed := time.Since(begun) // also if the machine was busy: the server's clock has not stood still
	if age := second.Earliest - first.Latest; second.Clock != first.Clock || age > passed || age < pause-memcached.ClockError {
		t.Errorf("%v passed between %+v and %+v, which says %v", passed, first, second, age)
	}
	srv.Restart()
	_, _ = d.Clock().Time(t.Context()) // it may be this request that finds the connection closed
	if third := read(); third.Clock == first.Clock {
		t.Errorf("%+v after a restart, %+v before", third, first)
	}
}
