package zookeeper

import (
	"errors"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// TestNoGrantAfterClose: Close decides whether the session has to live on for a minimum
// hold. A grant that comes later would count on a session that Close ends.
func TestNoGrantAfterClose(t *testing.T) {
	t.Parallel()
	ctx, d := inside(t)
	r := driver.Request{Name: "x", ID: "late-1", TTL: time.Minute, Renewed: true, Wait: true}
	enqueue(ctx, t, d, r)
	ticket := d.ticketOf(r.Hold(0))
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := d.grant(ticket, r, time.Now()); !errors.Is(err, driver.ErrClosed) {
		t.Errorf("a grant after Close: error %v, want ErrClosed", err)
	}
}
