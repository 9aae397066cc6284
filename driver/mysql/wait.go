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

const (
	pollRest  = 2   // times as long as a look took, but at most pollMost, does the poller rest at least
	pollLines = 100 // lines a statement
)

// poller looks after all waiters of a driver, with one statement whatever their
// number. It runs while there are any.
type poller struct {
	d    *Driver
	kick chan struct{}

	mu      sync.Mutex
	lines   map[string]*watch
	running bool
	beaten  time.Time // when the last beat was sent that the database heard
	fault   error     // of the last look; nil if it went well
}

// A watch is a line that somebody here waits in.
type watch struct {
	name    string
	waiters map[uint64]*waiter
	order   []*waiter // by number
	most    int       // how many tickets to read; 0: by the waiters
	head    uint64    // what was seen last, in one number
	moved   time.Time
	pace    pace
	due     time.Time     // when to look again
	rest    time.Duration // until then, from the last look
}

// A waiter is a ticket that stands in line.
type waiter struct {
	seat
	name, id string
	ttl      time.Duration
	seen     []row        // the head of the line when it was first looked at
	crowd    bool         // others stood behind when it was found to be next
	claimed  time.Time    // before the first claim was sent; zero: none was
	news     chan outcome // of one
}

type outcome struct {
	asked time.Time
	err   error
}

func (p *poller) init(d *Driver) {
	p.d = d
	p.kick = make(chan struct{}, 1)
	p.lines = make(map[string]*watch)
}

// wait returns when w is granted, lost, or ctx ends.
func (p *poller) wait(ctx context.Context, w *waiter) (driver.Grant, error) {
	if !p.add(w) {
		return driver.Grant{}, driver.ErrClosed
	}
	select {
	case o := <-w.news:
		return driver.Grant{Token: w.token, Asked: o.asked}, o.err
	case <-ctx.Done():
		p.mu.Lock()
		p.drop(w)
		err := p.fault
		p.mu.Unlock()
		return driver.Grant{}, errors.Join(context.Cause(ctx), err)
	case <-p.d.ctx.Done():
		return driver.Grant{}, driver.ErrClosed
	}
}

func (p *poller) add(w *waiter) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.lines[w.name]
	if l == nil {
		l = &watch{name: w.name, waiters: make(map[uint64]*waiter), moved: time.Now()}
		p.lines[w.name] = l
	}
	l.waiters[w.token] = w
	i, _ := slices.BinarySearchFunc(l.order, w.token, func(w *waiter, t uint64) int { return cmp.Compare(w.token, t) })
	l.order = slices.Insert(l.order, i, w)
	if i == 0 { // the line was looked at a moment ago
		due := l.note(&reading{rows: w.seen, seats: l.order[:1]}, time.Now())
		if len(l.order) == 1 || due.Before(l.due) {
			l.due = due
		}
	}
	if !p.running {
		p.running = p.d.begin(p.run)
		if p.running {
			p.beaten = time.Now()
		}
	}
	p.wake()
	return p.running
}

// drop forgets a waiter. With mu held.
func (p *poller) drop(w *waiter) {
	l := p.lines[w.name]
	if l == nil || l.waiters[w.token] != w {
		return
	}
	delete(l.waiters, w.token)
	i := slices.Index(l.order, w)
	l.order = slices.Delete(l.order, i, i+1)
	if len(l.order) == 0 {
		delete(p.lines, w.name)
	}
}

func (p *poller) wake() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// watches tells whether somebody here waits for name.
func (p *poller) watches(name string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lines[name] != nil
}

// nudge makes the poller look now, because name's line has moved.
func (p *poller) nudge(name string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.lines[name]; l != nil {
		l.moved = time.Now()
		l.due = l.moved
		p.wake()
	}
}

// run is the poller's goroutine.
func (p *poller) run() {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-p.kick:
		case <-p.d.ctx.Done():
			return
		}
		next, more := p.turn()
		if !more {
			return
		}
		t.Reset(next)
	}
}

// turn beats, looks, and claims; it returns when to do so again, or false when
// nobody waits any more.
func (p *poller) turn() (next time.Duration, more bool) {
	ctx, cancel := context.WithTimeout(p.d.ctx, max(p.d.opts.liveness/2, time.Second))
	defer cancel()
	p.d.sweepLater()
	began := time.Now()
	err := p.beat(ctx)
	if err == nil {
		err = p.look(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = err
	if len(p.lines) == 0 {
		p.running = false
	}
	if err != nil {
		return pollMost, p.running
	}
	now := time.Now()
	return max(p.next().Sub(now), min(pollRest*now.Sub(began), pollMost)), p.running
}

// next is when a line or a beat is due. With mu held.
func (p *poller) next() time.Time {
	next := p.beaten.Add(p.d.opts.liveness / 4)
	for _, l := range p.lines {
		if l.due.Before(next) {
			next = l.due
		}
	}
	return next
}

// beat shows, if it is time, that the waiters' process lives, and tells those
// whose tickets have left the line.
func (p *poller) beat(ctx context.Context) error {
	life := p.d.opts.liveness
	now := time.Now()
	p.mu.Lock()
	if now.Sub(p.beaten) < life/4 {
		p.mu.Unlock()
		return nil
	}
	var all []*waiter
	for _, l := range p.lines {
		all = append(all, l.order...)
	}
	p.mu.Unlock()
	slices.SortFunc(all, func(a, b *waiter) int { return cmp.Compare(a.token, b.token) })
	for some := range slices.Chunk(all, 2*batch) {
		if err := p.beatSome(ctx, some); err != nil {
			return err
		}
	}
	p.mu.Lock()
	p.beaten = now
	p.mu.Unlock()
	return nil
}

func (p *poller) beatSome(ctx context.Context, some []*waiter) error {
	v := values{life: p.d.opts.liveness, tokens: tokensOf(some)}
	n, err := p.d.change(ctx, "beat", v)
	if err != nil || n == int64(len(some)) {
		return err
	}
	there, err := p.d.tokens(ctx, "standing", v)
	if err != nil {
		return err
	}
	var lost []*waiter
	for _, w := range some {
		if !there[w.token] {
			lost = append(lost, w)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	// What is left of them is of no use to anybody.
	if _, err := p.d.exec(ctx, "buried", values{tokens: tokensOf(lost)}); err != nil {
		return err
	}
	for _, w := range lost {
		p.end(w, outcome{err: driver.ErrLost})
	}
	return nil
}

func tokensOf(ws []*waiter) []uint64 {
	tokens := make([]uint64, len(ws))
	for i, w := range ws {
		tokens[i] = w.token
	}
	return tokens
}

// end ends a wait, unless its caller has given up.
func (p *poller) end(w *waiter, o outcome) {
	p.mu.Lock()
	l := p.lines[w.name]
	waits := l != nil && l.waiters[w.token] == w
	p.drop(w)
	p.mu.Unlock()
	p.d.mu.Lock()
	if errors.Is(o.err, driver.ErrLost) {
		delete(p.d.queued, w.id)
	} else if t, ok := p.d.queued[w.id]; ok {
		t.crowd = w.crowd
		p.d.queued[w.id] = t
	}
	p.d.mu.Unlock()
	if waits {
		w.news <- o
	}
}
