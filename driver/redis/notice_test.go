package redis

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
)

// TestBrokenBeforeHanded: a waiter whose ticket was broken has no lock, though one is handed to it before it looks. Only the
// loss of a ticket that does not wait is told to the core.
func TestBrokenBeforeHanded(t *testing.T) {
	t.Parallel()
	c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	t.Cleanup(func() { _ = c.Close() })
	d, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	var lost []string
	d.NotifyLoss(func(h driver.Hold, _ error) { lost = append(lost, h.ID) })
	w := &waiter{notices: make(chan notice, 1)}
	d.waiters["waits"] = w
	d.notified("lwaits 5 x name")
	d.notify("waits", notice{provisional: time.Second})
	if n := <-w.notices; !n.gone {
		t.Errorf("the waiter is told %+v, want that its ticket has gone", n)
	}
	d.notified("lholds 6 x name")
	if len(lost) != 1 || lost[0] != "holds" {
		t.Errorf("the core is told that %q are lost, want the holder alone", lost)
	}
}
