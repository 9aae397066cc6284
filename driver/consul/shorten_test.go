package consul_test

import (
	"testing"
	"time"

	"github.com/lockerproject/locker/driver/consul"
	"github.com/lockerproject/locker/internal/testbed"
)

// A ticket with a minimum hold, whose lease is longer, is passed on after the hold, with
// the delay of a session of that length.
func TestShorten(t *testing.T) {
	t.Parallel()
	srv := testbed.Consul(t, testbed.Args("-hcl", `session_ttl_min="1s"`))
	d := driverOver(t, srv.Addr(), newTransport(t), consul.WithMinTTL(time.Second))
	r := waits(t.Name())
	r.TTL, r.MinHold = time.Minute, 2*time.Second
	h := get(t, d, r)
	granted := waiting(t, driverOver(t, srv.Addr(), newTransport(t)), t.Name())
	var took time.Duration
	all := testbed.Elapsed(func() {
		begun := time.Now()
		if err := d.Shorten(t.Context(), h, r.MinHold); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if g := <-granted; g.Token <= h.Token {
			t.Errorf("token %d after %d", g.Token, h.Token)
		}
		took = time.Since(begun)
	})
	if took < r.MinHold || all > consulBounds(r.MinHold)+time.Second {
		t.Errorf("passed on after %v, want %v at least, and %v at most", took, r.MinHold, consulBounds(r.MinHold))
	}
}
