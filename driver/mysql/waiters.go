package mysql

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A poller is the background task of all waiters of a driver. It runs while there are
// any: it polls their queues, claims what is granted, and sends their heartbeat.
type poller struct {
	d    *Driver
	wake chan struct{}

	mu          sync.Mutex
	queues      map[string]*watched
	running     bool
	heartbeatAt time.Time // when the last answered one was sent, or the poller started
	late        []*waiter // those that cannot wait for the next one
	together    time.Time // when the queues at rest are polled
	fault       error     // of the last poll; nil: it succeeded
}

// A watched is a queue that has waiters of this process.
type watched struct {
	name     string
	waiters  []*waiter // by token
	most     int       // how many tickets to read; 0: as the waiters need
	head     uint64    // a hash of what was read last
	movedAt  time.Time
	stuckAt  time.Time // when a ticket that has expired could not be reaped; zero: none was
	speed    speed
	due      time.Time     // when to poll
	interval time.Duration // from the last poll until then
}

// A waiter is a ticket that waits.
type waiter struct {
	candidate
	name, id  string
	ttl       time.Duration
	late      bool        // its insertion took long, and its life counts from when that began
	followed  bool        // others were queued after it when it was found to be grantable
	claimedAt time.Time   // before the first claim was sent; zero: none was
	answer    chan answer // of one
}

// An answer ends a wait.
type answer struct {
	asked time.Time
	err   error
}

func (p *poller) init(d *Driver) {
	p.d = d
	p.wake = make(chan struct{}, 1)
	p.queues = make(map[string]*watched)
}

// add adds a waiter, and reports false when the driver is closed.
func (p *poller) add(w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.queues[w.name]
	if q == nil {
		q = &watched{name: w.name, movedAt: time.Now()}
		p.queues[w.name] = q
	}
	i, _ := slices.BinarySearchFunc(q.waiters, w.token, func(w *waiter, token uint64) int { return cmp.Compare(w.token, token) })
	q.waiters = slices.Insert(q.waiters, i, w)
	if w.late {
		p.late = append(p.late, w)
	}
	if i == 0 || w.shared { // else it is not granted before the waiters ahead of it
		q.due = time.Now() // not zero: a poll that is under way did not read it
	}
	if !p.running {
		p.running = p.d.begin(p.run)
		p.heartbeatAt = time.Now()
	}
	p.signal()
	return p.running
}

// wait returns when w is granted or lost, or when ctx ends.
func (p *poller) wait(ctx context.Context, w *waiter) (driver.Grant, error) {
	select {
	case a := <-w.answer:
		return driver.Grant{Token: w.token, Asked: a.asked}, a.err
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		p.remove(w)
		return driver.Grant{}, errors.Join(context.Cause(ctx), p.fault)
	case <-p.d.ctx.Done():
		return driver.Grant{}, driver.ErrClosed
	}
}

// remove removes a waiter, and reports false if it was removed before. With mu held.
func (p *poller) remove(w *waiter) bool {
	q := p.queues[w.name]
	if q == nil {
		return false
	}
	i := slices.Index(q.waiters, w)
	if i < 0 {
		return false
	}
	if q.waiters = slices.Delete(q.waiters, i, i+1); len(q.waiters) == 0 {
		delete(p.queues, w.name)
	}
	return true
}

// end ends a wait, unless its caller has given up.
func (p *poller) end(w *waiter, a answer) {
	p.mu.Lock()
	waits := p.remove(w)
	p.mu.Unlock()
	p.d.state(w.id, func(s *ticketState) {
		if s.token > 0 && a.err == nil {
			s.followed = w.followed
		}
	})
	if waits {
		w.answer <- a
	}
}

func (p *poller) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// watches reports whether name has waiters of this process.
func (p *poller) watches(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queues[name] != nil
}

// moved polls a queue now, since a ticket has left it.
func (p *poller) moved(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if q := p.queues[name]; q != nil {
		q.movedAt = time.Now()
		q.due = q.movedAt
		p.signal()
	}
}

// heartbeat shows, when it is time, that the process of the waiters lives, and ends the
// waits of those that have expired.
func (p *poller) heartbeat(ctx context.Context) error {
	now := time.Now()
	p.mu.Lock()
	late, due := len(p.late), !now.Before(p.heartbeatAt.Add(p.d.opts.liveness/4))
	var all []*waiter
	for _, w := range p.late {
		if q := p.queues[w.name]; q != nil && !due && slices.Contains(q.waiters, w) {
			all = append(all, w)
		}
	}
	for _, q := range p.queues {
		if due {
			all = append(all, q.waiters...)
		}
	}
	p.mu.Unlock()
	slices.SortFunc(all, func(a, b *waiter) int { return cmp.Compare(a.token, b.token) })
	for some := range slices.Chunk(all, 2*batch) {
		if err := p.heartbeatOf(ctx, some); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.late = slices.Delete(p.late, 0, late)
	if due {
		p.heartbeatAt = now
	}
	return nil
}

func (p *poller) heartbeatOf(ctx context.Context, some []*waiter) error {
	v := values{liveness: p.d.opts.liveness, tokens: tokensOf(some)}
	n, err := p.d.change(ctx, "heartbeat", v)
	if err != nil || n == int64(len(some)) {
		return err
	}
	alive, err := p.d.tokens(ctx, "alive", v)
	if err != nil {
		return err
	}
	lost := slices.DeleteFunc(slices.Clone(some), func(w *waiter) bool { return contains(alive, w.token) })
	if len(lost) == 0 {
		return nil
	}
	if _, err := p.d.exec(ctx, "reap", values{tokens: tokensOf(lost)}); err != nil { // they block others
		return err
	}
	for _, w := range lost {
		p.end(w, answer{err: driver.ErrLost})
	}
	return nil
}

func contains(sorted []uint64, token uint64) bool {
	_, found := slices.BinarySearch(sorted, token)
	return found
}

func tokensOf(ws []*waiter) []uint64 {
	tokens := make([]uint64, len(ws))
	for i, w := range ws {
		tokens[i] = w.token
	}
	return tokens
}
