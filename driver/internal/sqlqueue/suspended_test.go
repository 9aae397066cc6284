package sqlqueue

import (
	"testing"
	"time"
	"unsafe"

	"github.com/lockerproject/locker/driver"
)

// TestGrantAfterASuspension grants a ticket upon a heartbeat after which the machine was suspended: the database has counted that
// time, and the core counts only what follows the call of Acquire.
func TestGrantAfterASuspension(t *testing.T) {
	b := newBook(4 * time.Second) // in no bubble, which has no monotonic clock
	sent := time.Now()
	*(*uint64)(unsafe.Pointer(&sent)) -= 3 << 30 // 3 s by the wall clock alone, in the way in which package time keeps its seconds
	b.acknowledged(b.current(), 1, sent)
	w := b.add(driver.Request{Name: "a", ID: "1", TTL: time.Minute})
	b.queued(w, time.Now(), time.Hour)
	b.granted(Grant{ID: w.id, Token: 7, Heartbeat: 1})
	if left := time.Until((<-w.outcome).until); left > time.Second || left < 500*time.Millisecond {
		t.Errorf("%v are left of the lease, want a second", left)
	}
}
