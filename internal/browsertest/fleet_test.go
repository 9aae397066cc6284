package browsertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker"
)

// fleet is a store as a company's would be, for the screenshots: locks that have
// been held for days, and some that change hands all the time.
type fleet struct {
	down atomic.Bool

	mu     sync.Mutex
	rng    *rand.Rand
	began  time.Time
	token  uint64
	queues map[string]*fleetQueue
}

type fleetQueue struct {
	queue []locker.Ticket
	ttl   time.Duration
	hold  time.Duration // 0: for ever
	churn bool          // whoever leaves is followed by somebody
	next  time.Time
}

func newFleet(seed uint64) *fleet {
	return &fleet{
		rng: rand.New(rand.NewPCG(seed, 1)), began: time.Now(), token: 48_210_000 + seed*1_000_000,
		queues: make(map[string]*fleetQueue),
	}
}

func (f *fleet) ticket(owner, note string, ago time.Duration) locker.Ticket {
	f.token += uint64(1 + f.rng.IntN(40))
	return locker.Ticket{Token: f.token, Owner: owner, Note: note, Since: time.Now().Add(-ago)}
}

// add makes a queue whose first holders hold since age.
func (f *fleet) add(name, owner, note string, age, hold time.Duration, waiters int, limit int) {
	q := &fleetQueue{ttl: 30 * time.Second, hold: hold, churn: hold > 0}
	holders := max(1, limit)
	for i := range holders + waiters {
		who := owner
		if i > 0 {
			who = fmt.Sprintf("%s/%d", f.host(), 2000+f.rng.IntN(60000))
		}
		ago := age
		if i >= holders {
			ago = time.Duration(waiters-i+holders) * max(hold, 7*time.Second)
		}
		t := f.ticket(who, note, ago)
		if i >= holders {
			t.Note = ""
		}
		t.Held, t.Shared, t.Limit = i < holders, limit > 0, limit
		q.queue = append(q.queue, t)
	}
	q.next = time.Now().Add(time.Duration(f.rng.Int64N(int64(hold + 1))))
	f.queues[name] = q
}

func (f *fleet) host() string {
	kinds := []string{"worker", "api", "batch", "ledger", "cron"}
	zones := []string{"eu-1a", "eu-1b", "us-2c"}
	return fmt.Sprintf("%s-%02d.%s", kinds[f.rng.IntN(len(kinds))], f.rng.IntN(24), zones[f.rng.IntN(len(zones))])
}

// step lets a queue whose time has come change hands.
func (f *fleet) step(q *fleetQueue) {
	now := time.Now()
	for q.hold > 0 && now.After(q.next) {
		q.next = q.next.Add(q.hold/2 + time.Duration(f.rng.Int64N(int64(q.hold))))
		gone := q.queue[0]
		q.queue = slices.Delete(q.queue, 0, 1)
		for i := range q.queue {
			if !q.queue[i].Held {
				q.queue[i].Held, q.queue[i].Since, q.queue[i].Note = true, now, gone.Note
				break
			}
		}
		t := f.ticket(fmt.Sprintf("%s/%d", f.host(), 2000+f.rng.IntN(60000)), "", 0)
		t.Shared, t.Limit = gone.Shared, gone.Limit
		t.Held = len(q.queue) == 0
		q.queue = append(q.queue, t)
	}
}

func (f *fleet) List(context.Context) ([]string, error) {
	if f.down.Load() {
		return nil, errors.New("locker: list: etcd: dial tcp 10.4.0.17:2379: connect: connection refused")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	names := make([]string, 0, len(f.queues))
	for name := range f.queues {
		names = append(names, name)
	}
	return names, nil
}

func (f *fleet) Inspect(_ context.Context, name string) (locker.Queue, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.queues[name]
	f.step(q)
	ts := slices.Clone(q.queue)
	for i := range ts {
		if ts[i].Held { // renewed at a third of its TTL
			since := time.Since(ts[i].Since) + time.Duration(ts[i].Token%97)*100*time.Millisecond
			ts[i].Remaining = q.ttl - since%(q.ttl/3)
		}
	}
	return locker.Queue{Name: name, Tickets: ts}, nil
}

func (f *fleet) Break(context.Context, string, uint64) error { return locker.ErrUnsupported }

func (f *fleet) Ping(context.Context) error { return nil }

func (f *fleet) ServerVersion(context.Context) (string, error) { return "", locker.ErrUnsupported }

// payments is a fleet of 800 locks.
func payments() *fleet {
	f := newFleet(7)
	f.add("payments/settlement/eu-west-1", "ledger-03.eu-1a/4121", "settling batch 2026-11-22, 18,204 entries", 4*time.Minute+11*time.Second, 9*time.Second, 6, 0)
	f.add("payments/settlement/us-east-2", "ledger-11.us-2c/977", "settling batch 2026-11-21, 9,877 entries", 52*time.Second, 6*time.Second, 3, 0)
	f.add("ledger/close-of-day", "batch-07.eu-1b/31872", "run 4711, started by j.meyer", 2*time.Hour+14*time.Minute, 0, 2, 0)
	f.add("card-network/session", "api-04.eu-1a/1188", "", 3*time.Second, 3*time.Second, 9, 4)
	f.add("fx-rates/refresh", "cron-01.eu-1a/204", "ECB reference rates", time.Second, 1500*time.Millisecond, 1, 0)
	f.add("customer/8c1f9a72-4e2b-4bb7-9c52-0ad3a1b7f7de/limits/recalculate-after-chargeback", "worker-19.us-2c/5502", "", 21*time.Second, 12*time.Second, 1, 0)
	kinds := []string{"orders", "refunds", "payouts", "accounts", "invoices", "mandates"}
	for i := range 794 {
		kind := kinds[i%len(kinds)]
		age := time.Duration(f.rng.Int64N(int64(40 * time.Minute)))
		hold, waiters := time.Duration(0), 0
		switch {
		case i%41 == 0:
			hold, waiters = time.Duration(2+f.rng.IntN(9))*time.Second, 1+f.rng.IntN(3)
		case i%11 == 0:
			hold = time.Duration(4+f.rng.IntN(20)) * time.Second
		}
		f.add(fmt.Sprintf("%s/%d", kind, 480_000+f.rng.IntN(90_000)), fmt.Sprintf("%s/%d", f.host(), 1000+f.rng.IntN(60000)), "", age, hold, waiters, 0)
	}
	return f
}

// clusters is a fleet of 220 locks.
func clusters() *fleet {
	f := newFleet(11)
	f.add("leader/scheduler", "scheduler-0", "term 118", 6*24*time.Hour+4*time.Hour, 0, 2, 0)
	f.add("leader/billing-exporter", "exporter-2", "term 31", 19*time.Hour, 0, 1, 0)
	f.add("migrations/orders-db", "deploy-8831", "0142_add_settlement_index", 3*time.Minute+40*time.Second, 0, 1, 0)
	for i := range 217 {
		f.add(fmt.Sprintf("shard/%03d/compaction", i), fmt.Sprintf("storage-%02d", i%31), "",
			time.Duration(f.rng.Int64N(int64(3*time.Hour))), time.Duration(i%7/6)*30*time.Second, 0, 0)
	}
	return f
}
