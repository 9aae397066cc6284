package conformance

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

var exclusion = topic("exclusion",
	newCase("mutex", "D4 D5 C1",
		"of many clients that want a name exclusively, only one at a time believes that it holds it", func(e *env) { contend(e, exclusively) }).keepsBusy(),
	newCase("readers-and-writers", "D4 D5 C1",
		"readers and writers obey the grant rule at every instant", func(e *env) { contend(e, exclusively, shared(0), shared(0)) }).keepsBusy(),
	newCase("permits", "D4 D5 C1",
		"a semaphore never has more than n holders, under contention", func(e *env) { contend(e, shared(3)) }).keepsBusy(),
	newCase("mixed", "D4 D5 C1",
		"writers, readers and permits of different limits obey the grant rule at every instant", func(e *env) { contend(e, exclusively, shared(0), shared(2), shared(3)) }).keepsBusy(),
	newCase("permits-all-used", "D4 C1",
		"a semaphore of n has n holders at the same time, and the next waits for one of them",
		obeys(shared(3), shared(3), shared(3), shared(3), shared(3))),
	newCase("readers-share", "D4 C1",
		"readers of several processes hold at the same time, and block a writer", obeys(shared(0), shared(0), exclusively)),
	newCase("writer-alone", "D4 D6 C1 C8",
		"a writer blocks writers, readers and permits of every process, including its own, and a TryAcquire that is refused leaves nothing", obeys(exclusively)),
	// The queues have every kind of ticket, and tickets are removed at random positions.
	newCase("queue-obeys-rule", "D4 D5 D15 C1",
		"after every change of the queue exactly those tickets are held that the grant rule allows", func(e *env) {
			kinds := []kind{exclusively, shared(0), shared(1), shared(2), shared(3)}
			cs := e.clients(2)
			for range rounds(8) {
				q := &queueModel{e: e, name: e.name("queue")}
				for i := range 6 {
					kd := kinds[e.random.intN(len(kinds))]
					q.add(cs[i%2], kd, i)
				}
				for len(q.members) > 0 {
					q.remove(e.random.intN(len(q.members)))
				}
			}
		}).keepsBusy(),
)

// kind is a kind of request.
type kind struct {
	shared bool
	limit  int
}

var exclusively kind

func shared(limit int) kind { return kind{true, limit} }

// ticket returns a ticket of the kind, for the grant rule.
func (k kind) ticket() driver.Ticket { return driver.Ticket{Shared: k.shared, Limit: k.limit} }

func (k kind) String() string {
	switch {
	case k.limit > 0:
		return fmt.Sprintf("shared (limit %d)", k.limit)
	case k.shared:
		return "shared"
	}
	return "exclusive"
}

func (k kind) options(more ...locker.Option) []locker.Option {
	switch {
	case k.limit > 0:
		return append(more, locker.Limit(k.limit))
	case k.shared:
		return append(more, locker.Shared())
	}
	return more
}

// rounds returns how often to repeat something random.
func rounds(n int) int {
	if testing.Testing() && testing.Short() {
		return max(1, n/4)
	}
	return n
}

// The contenders of random cases are several goroutines in each of several
// processes.
const (
	processes  = 3
	perProcess = 3
)

// contend lets several goroutines of several processes acquire a name in random
// ways, and checks what they observed against the grant rule.
func contend(e *env, kinds ...kind) {
	name, cs := e.name("contend"), e.clients(processes)
	var l ledger
	e.each(processes*perProcess, func(i int) {
		for range rounds(16) {
			kd := kinds[e.random.intN(len(kinds))]
			k := e.take(cs[i%processes], name, kd.options()...)
			en := l.granted(k, kd)
			for range e.random.intN(20) {
				runtime.Gosched()
			}
			l.ends(en)
			e.release(k)
		}
	})
	e.ok(l.check(), "the history of %q", name)
}

// obeys returns a case that queues tickets of these kinds, each in another process than
// the one before it, and lets the first leave until the queue is empty.
func obeys(kinds ...kind) func(*env) {
	return func(e *env) {
		q := &queueModel{e: e, name: e.name("queue")}
		cs := e.clients(3)
		for i, kd := range kinds {
			q.add(cs[i%3], kd, i)
			q.tries(cs)
		}
		for range kinds {
			q.remove(0)
			q.tries(cs)
		}
	}
}

// queueModel is the queue as it should be.
type queueModel struct {
	e       *env
	name    string
	members []*member
}

type member struct {
	*pending
	kd    kind
	owner string
}

func (q *queueModel) add(c *locker.Client, kd kind, i int) {
	owner := fmt.Sprintf("t%d", i)
	p := q.e.acquire(c, q.name, kd.options(locker.WithOwner(owner))...)
	q.members = append(q.members, &member{p, kd, owner})
	q.awaitRule(fmt.Sprintf("%s queued as %s", owner, kd))
}

// remove releases a holder, or cancels a waiter.
func (q *queueModel) remove(i int) {
	gone := q.members[i]
	wasGranted := q.granted()[i]
	q.members = slices.Delete(q.members, i, i+1)
	if wasGranted {
		q.e.release(gone.granted(patient, "the queue showed it as a holder"))
	} else {
		gone.cancel(nil)
		_ = gone.ended(patient, "it was cancelled")
	}
	q.awaitRule(gone.owner + " left")
}

// tries checks that a TryAcquire of each kind, in each process, is granted or refused as
// the rule says, and leaves the queue as it was.
func (q *queueModel) tries(cs []*locker.Client) {
	for _, c := range cs {
		for _, kd := range []kind{exclusively, shared(0), shared(len(cs))} {
			k, err := c.TryAcquire(q.e.within(patience), q.name, kd.options()...)
			if err == nil {
				q.e.release(k)
			}
			var want error
			if !driver.Grantable(append(q.tickets(), kd.ticket()), len(q.members)) {
				want = locker.ErrNotAcquired
			}
			if !errors.Is(err, want) {
				q.e.failf("try to acquire %q as %s: got error %v, want %v; the queue is %s", q.name, kd, err, want, show(q.e.queueOf(q.name)))
			}
		}
	}
	q.e.ok(q.compare(), "after a TryAcquire of each kind")
}

func (q *queueModel) tickets() []driver.Ticket {
	queue := make([]driver.Ticket, len(q.members))
	for i, mb := range q.members {
		queue[i] = mb.kd.ticket()
	}
	return queue
}

func (q *queueModel) granted() []bool { return driver.Granted(q.tickets()) }

// awaitRule waits until the store's queue is as the grant rule says, and checks that no
// Acquire has returned too early.
func (q *queueModel) awaitRule(after string) {
	q.e.eventually(slacks(2), "after "+after, q.compare)
	for i, granted := range q.granted() {
		if granted {
			q.members[i].granted(patient, after)
		} else {
			q.members[i].waits("the rule does not grant it after " + after)
		}
	}
}

func (q *queueModel) compare() error {
	queue := q.e.queueOf(q.name)
	if len(queue) != len(q.members) {
		return fmt.Errorf("want %d tickets: %s", len(q.members), show(queue))
	}
	for i, granted := range q.granted() {
		want := q.members[i]
		if queue[i].Owner != want.owner || queue[i].Held != granted || queue[i].Shared != want.kd.shared || queue[i].Limit != want.kd.limit {
			return fmt.Errorf("position %d: want %s, %s, held %v: %s", i, want.owner, want.kd, granted, show(queue))
		}
	}
	return nil
}
