package memcached_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// A server that has no memory for more locks renews and releases those that are held, also
// fixed leases, which are written anew, and grants others when they are released.
func TestServerFull(t *testing.T) {
	t.Parallel()
	url := testbed.Memcached(t, testbed.Args("-m", "32")).URL() + "?timeout=20s"
	d, err := open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	note := strings.Repeat("x", 512)
	var held []driver.Renewal
	request := func() driver.Request {
		i := len(held)
		return driver.Request{
			Name: fmt.Sprint("name", i), ID: fmt.Sprint("id", i), TTL: time.Minute,
			Renewed: i%2 == 0, Owner: note[:i%500+1], Note: note[:i*7%500+1],
		}
	}
	for refused := false; !refused; {
		r := request()
		g, err := d.Acquire(t.Context(), r)
		switch {
		case err == nil:
			held = append(held, driver.Renewal{Hold: r.Hold(g.Token), TTL: r.TTL})
		case driver.IsUnavailable(err) || !errors.Is(err, driver.ErrNoTicket) || !strings.Contains(err.Error(), "-m"):
			t.Fatalf("the lock %d is refused with %v", len(held), err)
		default:
			refused = true
		}
	}
	t.Logf("%d locks fit", len(held))
	for i, err := range d.(driver.BatchRenewer).RenewAll(t.Context(), held) {
		if err != nil {
			t.Fatalf("renewal of the lock %d of %d: %v", i, len(held), err)
		}
	}
	for i, r := range held {
		if err := d.Release(t.Context(), r.Hold); err != nil {
			t.Fatalf("release of the lock %d of %d: %v", i, len(held), err)
		}
	}
}
