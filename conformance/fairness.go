package conformance

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/figures"
)

var fairness = topic("fairness",
	newCase("first-come-first-served", "D5 D3 C2",
		"waiters are granted in exactly the order in which they were queued", func(e *env) {
			const n = 8
			name, cs := e.name("fifo"), e.clients(3)
			k := e.takeNow(cs[0], name)
			ps := make([]*pending, n)
			for i := range ps {
				ps[i] = e.queue(cs[(i+1)%3], name, i+2)
			}
			token := k.Token()
			e.release(k)
			for i, p := range ps {
				k := p.granted(patient, "its turn came")
				for _, later := range ps[i+1:] {
					later.waits("an earlier waiter holds")
				}
				e.grows(token, k.Token())
				token = k.Token()
				e.release(k)
			}
		}).keepsBusy(),
	// Each holder releases only when all others are queued, so that the scheduler of the operating system
	// does not decide the result.
	newCase("even-share", "D5 C2",
		"contenders in a loop get the same number of grants (Jain index ≥ 0.99)", func(e *env) {
			const contenders, least = 8, 0.99
			name := e.name("even")
			var left atomic.Int64
			var q waitingOwners
			cs := e.clients(4, locker.WithObserver(q.observe))
			k := e.take(e.control(), name)
			left.Store(int64(contenders * rounds(24)))
			var grants [contenders]int // guarded by the lock, and by mu for the race detector
			var mu sync.Mutex
			e.each(contenders+1, func(i int) {
				if i == contenders { // the first holder
					e.awaitQueue(name, contenders+1)
					e.release(k)
					return
				}
				for left.Load() > 0 {
					k := e.take(cs[i%4], name, locker.WithOwner(fmt.Sprint(i)))
					if left.Add(-1) >= 0 {
						mu.Lock()
						grants[i]++
						mu.Unlock()
					}
					for begun := time.Now(); q.len() < contenders-1 && left.Load() > 0 && time.Since(begun) < patience; {
						e.sleep(50 * time.Microsecond)
					}
					e.release(k)
				}
			})
			if index := figures.Jain(grants[:]); index < least {
				e.failf("the Jain index of grants %v is %.4f, want at least %v", grants, index, least)
			}
		}).keepsBusy(),
	newCase("writer-not-overtaken", "D5 C2",
		"a writer that waits for readers is not overtaken by later readers", func(e *env) {
			name, cs := e.name("writer-first"), e.clients(3)
			r1 := e.takeNow(cs[0], name, locker.Shared())
			w := e.queue(cs[1], name, 2)
			r2 := e.queue(cs[2], name, 3, locker.Shared())
			permit := e.queue(cs[0], name, 4, locker.Limit(5))
			e.release(r1)
			writer := w.granted(patient, "the reader released")
			r2.waits("the writer before it holds")
			permit.waits("the writer before it holds")
			e.handOver(writer, r2)
			e.release(permit.granted(patient, "the writer released"))
		}),
	newCase("readers-together", "D4 D13 C2",
		"readers that wait for a writer are granted together when it releases", func(e *env) {
			const n = 4
			name, cs := e.name("together"), e.clients(3)
			w := e.takeNow(cs[0], name)
			var ps []*pending
			for i := range n {
				ps = append(ps, e.queue(cs[i%3], name, i+2, locker.Shared()))
			}
			e.release(w)
			for _, p := range ps {
				p.granted(patient, "the writer released and the other readers hold")
			}
			for _, p := range ps {
				e.holds(p.lock, "with the other readers")
				e.release(p.lock)
			}
		}),
)

// waitingOwners has the owners that wait, as the observers of their clients report.
type waitingOwners struct {
	mu     sync.Mutex
	owners map[string]bool
}

func (q *waitingOwners) observe(_ context.Context, ev locker.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch ev.Kind {
	case locker.EventWaiting:
		if q.owners == nil {
			q.owners = make(map[string]bool)
		}
		q.owners[ev.Owner] = true
	case locker.EventAcquired:
		delete(q.owners, ev.Owner)
	}
}

func (q *waitingOwners) len() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.owners)
}
