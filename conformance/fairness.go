package conformance

import (
	"github.com/lockerproject/locker"
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
