package memory

import (
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Once the readers without a limit among the waiters are granted, a release does not walk all waiters any more.
func TestWalkEndsAfterReadersWithoutALimit(t *testing.T) {
	d := New()
	defer d.Close()
	for _, r := range []driver.Request{
		{ID: "writer"},
		{ID: "reader", Shared: true},
		{ID: "1", Shared: true, Limit: 1},
		{ID: "2", Shared: true, Limit: 2},
		{ID: "3", Shared: true, Limit: 1},
	} {
		r.Name, r.TTL, r.Wait = "a", time.Hour, true
		if _, err := d.enqueue(r); err != nil {
			t.Fatal(err)
		}
	}
	q := d.s.queues["a"]
	if err := d.Release(t.Context(), driver.Hold{Name: "a", ID: "writer"}); err != nil {
		t.Fatal(err)
	}
	if q.holders.n != 1 || q.waiters.n != 3 || q.most != 2 {
		t.Errorf("%d hold, %d wait, and a walk ends behind %d tickets", q.holders.n, q.waiters.n, q.most)
	}
}
