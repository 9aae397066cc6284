package memcached_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memcached"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestSilentServer: while one of two servers is silent, whichever it is, a wait for a name of the other one does not end as if
// the store were, and a wait for a name of its own does.
func TestSilentServer(t *testing.T) {
	t.Parallel()
	e := testbed.MemcachedN(t, 2)
	proxies := e.Proxies(t)
	addrs := proxies.Addrs()
	client := func() *locker.Client {
		d, err := memcached.New(addrs)
		if err != nil {
			t.Fatal(err)
		}
		l := locker.New(d)
		t.Cleanup(func() { _ = l.Close() })
		return l
	}
	l, holder := client(), client()
	for i, silent := range addrs {
		ends := make(map[string]chan error)
		for n := 0; len(ends) < len(addrs); n++ {
			name := fmt.Sprint("name", i, "-", n)
			addr := asked(t, addrs, name)
			if ends[addr] != nil {
				continue
			}
			if _, err := holder.Acquire(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			end := make(chan error, 1)
			ends[addr] = end
			go func() {
				_, err := l.Acquire(t.Context(), name, locker.WithWait(6*time.Second))
				end <- err
			}()
			for queue := (locker.Queue{}); len(queue.Tickets) < 2; {
				var err error
				if queue, err = holder.Inspect(t.Context(), name); err != nil {
					t.Fatal(err)
				}
			}
		}
		proxies.Proxies[i].Cut()
		for _, addr := range addrs {
			if err := <-ends[addr]; !errors.Is(err, locker.ErrNotAcquired) || errors.Is(err, locker.ErrUnavailable) != (addr == silent) {
				t.Errorf("%s is silent, and the wait for a name of %s ends with %v", silent, addr, err)
			}
		}
		proxies.Proxies[i].Heal()
	}
}
