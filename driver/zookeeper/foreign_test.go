package zookeeper_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// TestRenewForeign: a ticket is renewed by another driver, which cannot do so. The answer does not say that it is lost while its holder
// has it (D14).
func TestRenewForeign(t *testing.T) {
	t.Parallel()
	at := storeURL(t)
	ctx := ctxFor(t, 30*time.Second)
	d, other, r := open(t, at), open(t, at), request("x", "held-1")
	g := must[driver.Grant](t)(d.Acquire(ctx, r))
	if err := other.Renew(ctx, r.Hold(g.Token), r.TTL); !errors.Is(err, driver.ErrUnsupported) || errors.Is(err, driver.ErrLost) {
		t.Errorf("another driver's ticket is renewed: %v, want ErrUnsupported", err)
	}
	if err := d.Renew(ctx, r.Hold(g.Token), r.TTL); err != nil {
		t.Error(err)
	}
	if err := d.Release(ctx, r.Hold(g.Token)); err != nil {
		t.Error(err)
	}
	if err := other.Renew(ctx, r.Hold(g.Token), r.TTL); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a ticket that was released is renewed: %v, want ErrLost", err)
	}
}
