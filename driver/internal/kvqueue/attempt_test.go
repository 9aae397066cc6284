package kvqueue

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Acquisitions that need a session at once, or a keep-alive of it, send one request for all, however many they are.
func TestOneRequestForASession(t *testing.T) {
	inBubble(t, func(b *bed) {
		for _, what := range []string{"open", "keep"} {
			before := b.store.count("open") + b.store.count("keep")
			b.store.with(func(request, _ string, done bool) error {
				if request == what && !done {
					time.Sleep(tryBound / 2)
				}
				return nil
			})
			const all = 8
			var done atomic.Int32
			for i := range all {
				go func() {
					name := fmt.Sprint(what, i)
					b.drop(b.e, b.get(b.e, request(name, name)))
					done.Add(1)
				}()
			}
			time.Sleep(tryBound * 3 / 4)
			synctest.Wait()
			if n := b.store.count("open") + b.store.count("keep") - before; n != 1 || done.Load() != all {
				b.Errorf("%s: %d requests, want 1, after whose answer %d of %d acquisitions are done", what, n, done.Load(), all)
			}
			b.store.with(nil)
			time.Sleep(30*time.Second/freshPart + time.Second) // and no longer: the session is still kept
		}
	})
}
