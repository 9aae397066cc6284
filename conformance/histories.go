package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/retry"
)

var histories = topic("history",
	newCase("mutex", "D3 D4 D5 D6 C10",
		"a random run on one name, exclusively, is linearizable in the model of the queue", func(e *env) { randomRun(e, nil, exclusively) }).keepsBusy(),
	newCase("mixed", "D3 D4 D5 D6 C10",
		"a random run of writers, readers and permits is linearizable", func(e *env) { randomRun(e, nil, exclusively, shared(0), shared(2), shared(0)) }).keepsBusy(),
	newCase("with-cuts", "D3 D4 D10 D14 C10",
		"a random run in which clients are cut off, for a while or for good, and answers are lost, is linearizable", func(e *env) { randomRun(e, cutClients, exclusively, exclusively, shared(0)) }).waitsLong(),
	newCase("with-kills", "D3 D4 D10 D14 C10",
		"a random run in which the store is killed, started and paused is linearizable", func(e *env) { randomRun(e, killServer, exclusively, exclusively, shared(0)) }).needs(NeedServer).at(ownStore).waitsLong(),
)

// run is a random run on one name, and its record.
type run struct {
	e       *env
	name    string
	ttl     time.Duration
	kinds   []kind
	faulty  bool
	ledger  ledger
	waiting sync.Map // owner → *turn, for the observer
	holder  atomic.Int64
	out     [processesOfRun]atomic.Bool // who is cut off: its holders do not release
	dead    [processesOfRun]atomic.Bool // who is cut off for good

	mu      sync.Mutex
	now     int64
	tickets int
	ops     []porcupine.Operation
}

// turn is one Acquire or TryAcquire of a run.
type turn struct {
	r        *run
	client   int
	ticket   int
	kind     kind
	call     int64
	queued   atomic.Int64 // when the observer was notified that it is queued
	rejoined atomic.Bool
}

// processesOfRun is how many clients a run has, each with two goroutines.
const processesOfRun = 4

// randomRun lets clients acquire a name in random ways during faults, and checks the
// record against the grant rule and with porcupine.
func randomRun(e *env, trouble func(r *run, links []Link), kinds ...kind) {
	const clients = processesOfRun
	r := &run{e: e, name: e.uncheckedName("history"), ttl: e.ttl(), kinds: kinds, faulty: trouble != nil}
	cs, links := make([]*locker.Client, clients), make([]Link, clients)
	for i := range cs {
		if trouble == nil {
			cs[i] = e.client(locker.WithObserver(r.observe))
		} else {
			cs[i], links[i] = e.linked(locker.WithObserver(r.observe))
		}
	}
	e.each(2*clients+1, func(i int) {
		if i == 2*clients {
			if trouble != nil {
				trouble(r, links)
			}
			return
		}
		for range rounds(10) {
			if r.dead[i/2].Load() {
				return
			}
			r.turn(cs[i/2], i)
		}
	})
	e.ok(r.ledger.check(), "the history of %q", r.name)
	e.ok(checkHistory(r.ops), "the history of %q", r.name)
}

// tick advances the clock of the record.
func (r *run) tick() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now++
	return r.now
}

// happened records a step.
func (t *turn) happened(what stepKind, token uint64, from, to int64) {
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	t.r.ops = append(t.r.ops, porcupine.Operation{
		ClientId: t.client, Input: step{what, t.ticket, token, t.kind}, Call: from, Return: to,
	})
}

// observe records when tickets are queued.
func (r *run) observe(_ context.Context, ev locker.Event) {
	found, ok := r.waiting.Load(ev.Owner)
	if !ok {
		return
	}
	t := found.(*turn) //nolint:forcetypeassert // nothing else is stored
	switch ev.Kind {
	case locker.EventWaiting:
		t.queued.Store(r.tick())
	case locker.EventRejoined:
		t.rejoined.Store(true)
	}
}

func (r *run) newTurn(client int) *turn {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tickets++
	return &turn{r: r, client: client, ticket: r.tickets, kind: r.kinds[r.e.random.intN(len(r.kinds))]}
}

// turn tries to acquire the name, holds it for a moment, and releases it.
func (r *run) turn(c *locker.Client, client int) {
	t := r.newTurn(client)
	owner := fmt.Sprint(t.ticket)
	r.waiting.Store(owner, t)
	defer r.waiting.Delete(owner)
	patient := patience
	if r.faulty || r.e.random.intN(4) == 0 {
		patient = r.e.random.upTo(2 * r.ttl)
	}
	ctx, cancel := context.WithTimeout(r.e.ctx, patient)
	defer cancel()
	acquire := c.Acquire
	try := r.e.random.intN(4) == 0
	if try {
		acquire = c.TryAcquire
	}
	t.call = r.tick()
	k, err := acquire(ctx, r.name, t.kind.options(locker.WithOwner(owner), locker.WithTTL(r.ttl))...)
	switch {
	case err == nil:
		t.holds(k)
	case try && errors.Is(err, locker.ErrNotAcquired):
		t.happened(isRefused, 0, t.call, r.tick())
	default:
		t.unknownOutcome(ctx)
	}
}

// removalWait is less than how long Acquire waits, after the end of its context, for
// its ticket to be removed.
const removalWait = 25 * time.Millisecond

// unknownOutcome records a ticket that may have been queued, and then left at some
// time. In a run without faults it has left when Acquire returns, unless Acquire
// took as long as the core waits for the removal.
func (t *turn) unknownOutcome(ctx context.Context) {
	until := unobserved
	deadline, _ := ctx.Deadline()
	if late := time.Since(deadline); !t.r.faulty && late >= 0 && late < removalWait {
		until = t.r.tick()
	}
	t.happened(enqueues, 0, t.call, until)
	t.happened(leaves, 0, t.call, until)
}

// holds records a grant, holds for a moment, and releases.
func (t *turn) holds(k *locker.Lock) {
	r := t.r
	en := r.ledger.granted(k, t.kind)
	returned := r.tick()
	queuedBy := returned
	if at := t.queued.Load(); at != 0 && !t.rejoined.Load() {
		queuedBy = at
	}
	t.happened(enqueues, k.Token(), t.call, queuedBy)
	t.happened(isGranted, k.Token(), t.call, returned)
	if t.rejoined.Load() {
		(&turn{r: r, client: t.client, ticket: -t.ticket, kind: t.kind, call: t.call}).leftBehind(returned)
	}
	if r.e.random.intN(3) == 0 {
		time.Sleep(r.e.random.upTo(3 * time.Millisecond))
	}
	held := t.call // the latest time at which it was certainly held
	r.holder.Store(int64(t.client / 2))
	for out := &r.out[t.client/2]; r.faulty && (r.e.random.intN(4) > 0 || out.Load()); {
		now := r.tick()
		if k.Err() != nil {
			break
		}
		held = now
		time.Sleep(r.e.random.upTo(r.ttl / 8))
	}
	r.ledger.ends(en)
	before := r.tick()
	if k.Err() == nil {
		held = before
	}
	if err := k.Release(r.e.ctx); err != nil {
		t.happened(leaves, k.Token(), held, unobserved)
		return
	}
	t.happened(leaves, k.Token(), before, r.tick())
}

// leftBehind records the first ticket of a waiter that had to queue again.
func (t *turn) leftBehind(until int64) {
	t.happened(enqueues, 0, t.call, until)
	t.happened(leaves, 0, t.call, unobserved)
}

// cutClients cuts holders off for part of a lease, or for longer than one, drops the
// answers to others, and cuts one off for good.
func cutClients(r *run, links []Link) {
	for _, part := range []float64{1.3, 0.2, 0.5} {
		r.rest(r.e.random.upTo(r.ttl / 8))
		who := r.holder.Load()
		r.out[who].Store(true)
		if part == 0.5 {
			links[who].DropReplies(true)
		} else {
			links[who].Cut()
		}
		r.rest(time.Duration(part * float64(r.ttl)))
		links[who].Heal()
		r.out[who].Store(false)
		r.rest(r.ttl / 8)
	}
	who := r.holder.Load()
	r.dead[who].Store(true)
	r.out[who].Store(true)
	links[who].Cut()
	r.rest(r.ttl)
}

// killServer kills and pauses the store.
func killServer(r *run, _ []Link) {
	s := r.e.server()
	for _, trouble := range []func(){
		func() { s.kill(); r.rest(r.ttl / 4); s.start() },
		func() { s.pause(); r.rest(r.ttl * 5 / 4); s.resume() },
		func() { s.kill(); s.start() },
	} {
		r.rest(r.ttl / 4)
		r.allOut(true)
		trouble()
		r.rest(r.ttl / 4)
		r.allOut(false)
	}
}

func (r *run) allOut(out bool) {
	for i := range r.out {
		r.out[i].Store(out)
	}
}

// rest waits for d, unless the case ends.
func (r *run) rest(d time.Duration) { retry.Sleep(r.e.ctx, d, nil) }
