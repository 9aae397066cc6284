package kvqueue

import (
	"testing"
	"time"
	"unsafe"
)

// The machine was suspended since the session was kept alive last. The store has counted that
// time, so the lease does not count from that keep-alive.
func TestAcquireAfterSuspension(t *testing.T) {
	b := &bed{T: t, store: newFake(), lost: make(map[string]error)} // in no bubble, which has no monotonic clock
	b.e = New(Options{Store: b.store})
	b.drop(b.e, b.get(b.e, request("a", "0")))
	b.e.mu.Lock()
	for s := range b.e.sessions {
		setBack(&s.sent, 4*time.Second)
	}
	b.e.mu.Unlock()
	b.drop(b.e, b.get(b.e, request("a", "1")))
	if n := b.store.count("keep"); n != 1 {
		t.Errorf("%d keep-alives, want one", n)
	}
	if err := b.e.Close(); err != nil {
		t.Error(err)
	}
}

// setBack sets a time back by the wall clock only, in the way in which package time keeps its seconds.
func setBack(t *time.Time, by time.Duration) {
	*(*uint64)(unsafe.Pointer(t)) -= uint64(by/time.Second) << 30 //nolint:gosec // not negative; there is no other way
}
