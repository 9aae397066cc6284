package casqueue

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A queue whose holders release at once moves as fast as the next waiter polls: the processes behind it read the queue
// before it is their turn, though they have seen it move more slowly.
func TestPaceOfQueue(t *testing.T) {
	bubble(t, func(b *bed) {
		const clients, grants = 16, 1000
		var done atomic.Int64
		var group sync.WaitGroup
		begun := time.Now()
		for c := range clients {
			e, p := b.open()
			p.with(func(_, _ string) fault {
				time.Sleep(rand.N(time.Millisecond)) //nolint:gosec // no secret
				return fine
			})
			group.Go(func() {
				for i := 0; done.Add(1) <= grants; i++ {
					id := fmt.Sprint(c, "-", i)
					if _, err := e.Acquire(b.Context(), driver.Request{Name: "a", ID: id, TTL: time.Minute, Renewed: true, Wait: true}); err != nil {
						b.Error(err)
						return
					}
					time.Sleep(100 * time.Microsecond)
					if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: id}); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		group.Wait()
		if each := time.Since(begun) / grants; each > 5*time.Millisecond {
			b.Errorf("%v for each grant: want about 3 ms", each)
		}
	})
}
