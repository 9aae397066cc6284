package memcached_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/casqueue"
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

// A heartbeat that a full server refuses leaves the last one as it is: without any, what was observed before the first
// one would seem to be confirmed.
func TestHeartbeatIsRefused(t *testing.T) {
	t.Parallel()
	d, err := open(t.Context(), testbed.Memcached(t, testbed.Args("-m", "2")).URL())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	s := d.(interface{ Store() casqueue.Store }).Store()
	value := make([]byte, 1024)
	const first = "00000"
	for i, refused := 0, false; !refused; i++ {
		err := s.Set(t.Context(), fmt.Sprintf("%05d", i), value, time.Minute)
		if refused = err != nil; refused && (i == 0 || !driver.IsUnavailable(err)) {
			t.Fatalf("item %d: %v", i, err)
		}
	}
	if err := s.Set(t.Context(), first, value, time.Minute); !driver.IsUnavailable(err) {
		t.Fatalf("written to a full server: %v", err)
	}
	docs, err := s.Get(t.Context(), first)
	if err != nil || len(docs[0].Value) != len(value) {
		t.Errorf("after a write that was refused the item has %d bytes (%v), want %d", len(docs[0].Value), err, len(value))
	}
}
