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
	b.sentBefore(0, 4*time.Second)
	b.drop(b.e, b.get(b.e, request("a", "1")))
	if n := b.store.count("keep"); n != 1 {
		t.Errorf("%d keep-alives, want one", n)
	}
	if err := b.e.Close(); err != nil {
		t.Error(err)
	}
}

// A session that was not kept alive for its TTL takes no more tickets (TestOverdueSession), also if the wall clock was set back
// meanwhile.
func TestOverdueSessionBesideClockSetBack(t *testing.T) {
	b := &bed{T: t, store: newFake(), lost: make(map[string]error)} // in no bubble, which has no monotonic clock
	b.e = New(Options{Store: b.store})
	first := b.get(b.e, request("a", "0"))
	b.sentBefore(40*time.Second, 20*time.Second)
	if err := b.e.Renew(b.Context(), first, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	second := b.get(b.e, request("b", "1"))
	if n := b.store.count("open"); n != 2 {
		t.Errorf("%d sessions were opened, want two", n)
	}
	b.drop(b.e, first)
	b.drop(b.e, second)
	if err := b.e.Close(); err != nil {
		t.Error(err)
	}
}

// sentBefore makes the last keep-alive of the sessions earlier, by the monotonic clock and by the wall clock.
func (b *bed) sentBefore(monotonic, wall time.Duration) {
	b.e.mu.Lock()
	defer b.e.mu.Unlock()
	for s := range b.e.sessions {
		s.sent = s.sent.Add(-monotonic)
		setBack(&s.sent, wall-monotonic)
	}
}

// setBack sets a time back by the wall clock only, in the way in which package time keeps its seconds.
func setBack(t *time.Time, by time.Duration) {
	*(*uint64)(unsafe.Pointer(t)) -= uint64(by/time.Second) << 30 //nolint:gosec // modulo 1<<64; there is no other way
}
