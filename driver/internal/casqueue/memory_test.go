package casqueue

import (
	"runtime"
	"strconv"
	"testing"
)

// A held lock keeps its ticket, its document and what was observed of it: 1.3 KiB, without the client's share. A map
// for each lock would take another.
func TestMemoryOfHeld(t *testing.T) {
	const n, most = 2000, 1800 // bytes
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	bubble(t, func(b *bed) {
		e, p := b.open()
		before := heap()
		for i := range n {
			b.take(e, request("lock-"+strconv.Itoa(i), strconv.Itoa(i)))
		}
		p.fake.mu.Lock()
		clear(p.docs) // what the store keeps is no part of the engine
		p.fake.mu.Unlock()
		each := int64(heap()-before) / n
		if t.Logf("%d bytes a held lock", each); each > most {
			b.Errorf("%d bytes a held lock, want at most %d", each, most)
		}
		runtime.KeepAlive(e)
	})
}
