package mysql

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker/driver"
)

// Sweep sweeps now, as if nothing had been used for long.
func (d *Driver) Sweep(ctx context.Context) error {
	d.anchors.clear(ctx, 0)
	return d.sweep(ctx)
}

// SweepInTurn sweeps, unless another process does or has done so. It returns when a sweep is due again.
func (d *Driver) SweepInTurn(ctx context.Context) time.Duration { return d.sweepInTurn(ctx) }

// SlotOf is the slot of a name.
func SlotOf(name string) uint64 { return slotOf(name) }

// Head reads the first tickets of a queue, as a decision does.
func (d *Driver) Head(ctx context.Context, name string) (ids []string, err error) {
	rows, err := d.head(ctx, name, headLeast)
	for _, r := range rows {
		ids = append(ids, r.id)
	}
	return ids, err
}

// Turns is how many tickets a row may have, one after the other.
const Turns = turns

// SetTurn sets the turn of an idle anchor, as the driver remembers it.
func (d *Driver) SetTurn(name string, turn uint64) {
	d.anchors.mu.Lock()
	defer d.anchors.mu.Unlock()
	n := d.anchors.names[name]
	n.token = seqOf(n.token)*turns + turn
}

// Known returns the number of tickets of which the driver has a state.
func (d *Driver) Known() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.tickets)
}

// SlotColumn is the column of the table of slots.
var SlotColumn = current.column()

// An Edition is a version of the schema other than this package's.
type Edition = edition

// NewEdition is an edition of a version, with the hash of a text.
func NewEdition(version, hash string) Edition { return edition{version, hash} }

// Current is the edition of this package.
var Current = current

// Become changes the edition of a driver that was not used yet.
func (d *Driver) Become(e Edition) {
	d.w, _ = newWire(e, d.opts.prefix) // which was checked
}

// AgeReading makes the reading of the server's clock older, and wrong by an error.
func (d *Driver) AgeReading(by, wrong time.Duration) {
	s := *d.known.Load()
	s.read, s.clock = time.Now().Add(-by), time.Now().Add(wrong-by)
	d.known.Store(&s)
}

// ServerAhead is how far the server's clock is thought to be ahead of this machine's.
func (d *Driver) ServerAhead() time.Duration { return time.Until(d.known.Load().now()) }

// StatementsText is what programs do with the tables.
var StatementsText = statementsText

// Config is how the client of a URL's driver is configured.
func Config(raw string) (*mysql.Config, error) {
	u, err := driver.ParseURL(raw)
	if err != nil {
		return nil, err
	}
	u.Int("pool_size", defaultPool, 1) // clientConfig leaves it to openURL
	return clientConfig(u)
}

// DueAfterAPoll reports whether a queue is polled again at once if a reader came to it during a poll.
func DueAfterAPoll() bool {
	p := &poller{wake: make(chan struct{}, 1), queues: make(map[string]*watched), running: true}
	p.add(&waiter{name: "a", candidate: candidate{token: 2 * turns}})
	polls := p.due()
	polls[0].rows = []row{{token: turns, left: time.Minute}, {token: 2 * turns, left: time.Minute}}
	p.add(&waiter{name: "a", candidate: candidate{token: 3 * turns, shared: true}})
	p.plan(polls[0], false, false)
	return len(p.due()) == 1
}

// PollsAtRest returns how often a second a poller polls queues that do not move, if their waiters came one
// after the other. It is called in a bubble of synctest.
func PollsAtRest(queues int, apart time.Duration) (polls int) {
	const settle = 2 * time.Second
	p := &poller{wake: make(chan struct{}, 1), queues: make(map[string]*watched), running: true}
	last := time.Duration(queues-1) * apart
	for began, added := time.Now(), 0; time.Since(began) < last+settle+time.Second; time.Sleep(time.Millisecond) {
		for ; added < queues && time.Since(began) >= time.Duration(added)*apart; added++ {
			p.add(&waiter{name: strconv.Itoa(added), candidate: candidate{token: 2 * turns}})
		}
		if !slices.ContainsFunc(slices.Collect(maps.Values(p.queues)), func(q *watched) bool { return !q.due.After(time.Now()) }) {
			continue
		}
		for _, r := range p.due() {
			r.rows = []row{{token: turns, left: time.Minute}, {token: 2 * turns, left: time.Minute}}
			p.plan(r, false, false)
		}
		if time.Since(began) >= last+settle {
			polls++
		}
	}
	return polls
}

// GrantsAfter returns how often a second a lock is passed on among processes that want it all the time and hold it for
// a millisecond, after the queue stood still for a while. A statement takes a millisecond.
func GrantsAfter(standstill time.Duration, processes int) (grants int) {
	type process struct {
		token uint64
		q     *watched
		due   time.Time
	}
	const step = time.Millisecond
	now, last := time.Now(), uint64(0)
	began, queue := now, []*process{}
	enqueue := func(p *process) {
		last += turns
		p.token, p.q, p.due = last, &watched{movedAt: now}, now.Add(step)
		queue = append(queue, p)
	}
	for range processes {
		enqueue(&process{})
	}
	holder, until := queue[0], now.Add(standstill)
	for ; now.Before(began.Add(standstill + 2*time.Second)); now = now.Add(step) {
		if holder != nil && !now.Before(until) {
			queue = queue[1:]
			enqueue(holder)
			holder = nil
		}
		var rows []row
		for _, p := range queue[:headLeast] {
			rows = append(rows, row{token: p.token, left: time.Minute})
		}
		for i, p := range queue {
			switch {
			case p == holder || now.Before(p.due):
			case i == 0:
				holder, until = p, now.Add(step)
				if now.After(began.Add(standstill + time.Second)) {
					grants++
				}
			default:
				p.q.setInterval(&poll{reading: reading{rows: rows}, first: []*waiter{{candidate: candidate{token: p.token}}}}, now)
				p.due = now.Add(step + p.q.interval)
			}
		}
	}
	return grants
}
