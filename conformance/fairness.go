package conformance

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker"
)

var fairness = []Case{
	{
		Topic: "fairness", Name: "first-come-first-served", Rules: []string{"D5", "D3", "C2"}, busy: true,
		Explain: "waiters are granted in exactly the order in which they were queued",
		prove:   provesFIFO,
	},
	{
		Topic: "fairness", Name: "even-share", Rules: []string{"D5", "C2"}, busy: true,
		Explain: "contenders in a loop get the same number of grants (Jain index ≥ 0.99)",
		prove:   provesEvenShare,
	},
	{
		Topic: "fairness", Name: "writer-not-overtaken", Rules: []string{"D5", "C2"},
		Explain: "a writer that waits for readers is not overtaken by later readers",
		prove:   provesWriterNotOvertaken,
	},
	{
		Topic: "fairness", Name: "readers-together", Rules: []string{"D4", "D13", "C2"},
		Explain: "readers that wait for a writer are granted together when it releases",
		prove:   provesReadersTogether,
	},
	{
		Topic: "fairness", Name: "try-behind-writer", Rules: []string{"D5", "D6", "C2"},
		Explain: "TryAcquire of a reader does not overtake a waiting writer",
		prove:   provesTryBehindWriter,
	},
	{
		Topic: "fairness", Name: "try-behind-permits", Rules: []string{"D5", "D6", "C2"},
		Explain: "TryAcquire of a permit that was just released does not overtake the waiters for one",
		prove:   provesTryBehindPermits,
	},
	{
		Topic: "fairness", Name: "try-in-hand-off", Rules: []string{"D5", "D6", "C2"}, busy: true,
		Explain: "TryAcquire never succeeds between a release and the grant of the next waiter",
		prove:   provesTryInHandOff,
	},
	{
		Topic: "fairness", Name: "try-leaves-no-ticket", Rules: []string{"D6", "C2", "C8"},
		Explain: "a TryAcquire that was refused leaves nothing in the queue",
		prove:   provesTryLeavesNoTicket,
	},
	{
		Topic: "fairness", Name: "prompt-hand-off", Rules: []string{"D13", "C2"},
		Explain: "the next in the queue is granted when the holder releases, not at the next poll",
		prove:   provesPromptHandOff,
	},
	{
		Topic: "fairness", Name: "many-waits", Rules: []string{"D13", "D16", "C2"}, busy: true,
		Explain: "a process that waits for a hundred names goes on acquiring, renewing and releasing others",
		prove:   provesManyWaits,
	},
}

func provesFIFO(e *env) {
	const n = 8
	name := e.name("fifo")
	cs := e.clients(3)
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
		if k.Token() <= token {
			e.failf("waiter %d has token %d, after %d", i, k.Token(), token)
		}
		token = k.Token()
		e.release(k)
	}
	e.empty(name)
}

// provesEvenShare lets each holder release only when all others are queued, so that
// the scheduler of the operating system does not decide the result.
func provesEvenShare(e *env) {
	const contenders, least = 8, 0.99
	name := e.name("even")
	var left atomic.Int64
	var q waitingOwners
	cs := e.clients(4, locker.WithObserver(q.observe))
	k := e.take(e.control(), name)
	left.Store(int64(contenders * rounds(24)))
	var grants [contenders]int // guarded by the lock, and by mu for the race detector
	var mu sync.Mutex
	var first sync.WaitGroup
	first.Go(func() {
		e.awaitQueue(name, contenders+1)
		e.release(k)
	})
	e.each(contenders, func(i int) {
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
	first.Wait()
	if index := jain(grants[:]); index < least {
		e.failf("the Jain index of grants %v is %.4f, want at least %v", grants, index, least)
	}
}

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

// jain is the fairness index of Jain, Chiu and Hawe (1984): 1 when all have
// the same, 1/n when one has all.
func jain(xs []int) float64 {
	var sum, squares float64
	for _, x := range xs {
		sum += float64(x)
		squares += float64(x) * float64(x)
	}
	return sum * sum / (float64(len(xs)) * squares)
}

func provesWriterNotOvertaken(e *env) {
	name := e.name("writer-first")
	cs := e.clients(3)
	r1 := e.takeNow(cs[0], name, locker.Shared())
	w := e.queue(cs[1], name, 2)
	r2 := e.queue(cs[2], name, 3, locker.Shared())
	permit := e.queue(cs[0], name, 4, locker.Limit(5))
	e.release(r1)
	writer := w.granted(patient, "the reader released")
	r2.waits("the writer before it holds")
	permit.waits("the writer before it holds")
	e.release(writer)
	e.release(r2.granted(patient, "the writer released"))
	e.release(permit.granted(patient, "the writer released"))
	e.empty(name)
}

func provesReadersTogether(e *env) {
	const n = 4
	name := e.name("together")
	cs := e.clients(3)
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
	e.empty(name)
}

func provesTryBehindWriter(e *env) {
	name := e.name("try-writer")
	cs := e.clients(3)
	r := e.takeNow(cs[0], name, locker.Shared())
	w := e.queue(cs[1], name, 2)
	for _, c := range cs {
		e.refused(c, name, locker.Shared())
		e.refused(c, name, locker.Limit(9))
	}
	w.waits("a reader holds")
	e.release(r)
	e.release(w.granted(patient, "the reader released"))
	e.empty(name)
}

func provesTryBehindPermits(e *env) {
	const n = 2
	name := e.name("try-permits")
	cs := e.clients(2)
	k1 := e.takeNow(cs[0], name, locker.Limit(n))
	k2 := e.takeNow(cs[1], name, locker.Limit(n))
	p1 := e.queue(cs[0], name, 3, locker.Limit(n))
	p2 := e.queue(cs[1], name, 4, locker.Limit(n))
	e.release(k1)
	e.refused(cs[0], name, locker.Limit(n))
	k3 := p1.granted(patient, "a permit was released")
	p2.waits("all permits are held")
	e.refused(cs[1], name, locker.Limit(n))
	e.release(k2)
	k4 := p2.granted(patient, "a permit was released")
	e.release(k3)
	e.release(k4)
	e.empty(name)
}

// provesTryInHandOff lets a TryAcquire race with a release: if it succeeds before
// the waiter, which was queued first, it has overtaken the waiter.
func provesTryInHandOff(e *env) {
	name := e.name("hand-off")
	cs := e.clients(3)
	for range rounds(12) {
		k := e.take(cs[0], name)
		w := e.queue(cs[1], name, 2)
		var jumped atomic.Bool
		e.each(2, func(i int) {
			if i == 0 {
				e.release(k)
				return
			}
			for begun := time.Now(); !w.returned() && time.Since(begun) < slack; {
				if k, err := cs[2].TryAcquire(e.within(patience), name); err == nil {
					jumped.Store(true) // before the waiter's grant, or while it holds
					e.release(k)
				}
				e.sleep(100 * time.Microsecond)
			}
		})
		k = w.granted(patient, "the holder released")
		if jumped.Load() {
			e.failf("TryAcquire was granted %q while ticket %d was queued", name, k.Token())
		}
		e.release(k)
	}
	e.empty(name)
}

func provesTryLeavesNoTicket(e *env) {
	name := e.name("try")
	cs := e.clients(2)
	k := e.takeNow(cs[0], name)
	for range 3 {
		e.refused(cs[1], name)
		e.refused(cs[1], name, locker.Shared())
	}
	if queue := e.queueOf(name); len(queue) != 1 {
		e.failf("the queue has %d tickets after tries that were refused, want the holder's: %s", len(queue), show(queue))
	}
	e.release(k)
	k, err := cs[1].TryAcquire(e.within(patience), name)
	e.ok(err, "try to acquire what is free")
	e.release(k)
	e.empty(name)
}

func provesPromptHandOff(e *env) {
	name := e.name("prompt")
	cs := e.clients(2)
	k := e.takeNow(cs[0], name)
	for i := range 5 {
		p := e.queue(cs[(i+1)%2], name, 2)
		begun := time.Now()
		e.release(k)
		k = p.granted(patient, "the holder released")
		if took := p.at.Sub(begun); took > slack {
			e.failf("hand-off %d took %v, want at most %v", i, took, slack)
		}
	}
	e.release(k)
	e.empty(name)
}

// provesManyWaits finds drivers in which each waiter uses up something that others
// need, such as a connection of a pool.
func provesManyWaits(e *env) {
	n := rounds(100)
	cs := e.clients(2)
	own := e.take(cs[1], e.name("own"), locker.WithTTL(lastingTTL))
	ns, held, ps := make([]string, n), make([]*locker.Lock, n), make([]*pending, n)
	e.each(n, func(i int) {
		ns[i] = e.name(fmt.Sprint("wait-", i))
		held[i] = e.take(cs[0], ns[i])
	})
	for i := range ps {
		ps[i] = e.acquire(cs[1], ns[i])
	}
	for _, name := range ns {
		e.awaitQueue(name, 2)
	}
	for range 3 {
		e.release(e.takeNow(cs[1], e.name("beside")))
		e.sleep(lastingTTL / 2)
	}
	e.holds(own, "renewed beside %d waits", n)
	begun := time.Now()
	e.each(n, func(i int) { e.release(held[i]) })
	for _, p := range ps {
		k := p.granted(patient, "the holder released")
		if took := p.at.Sub(begun); took > 3*slack {
			e.failf("with %d waits a grant took %v", n, took)
		}
		e.release(k)
	}
	e.release(own)
}
