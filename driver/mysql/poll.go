package mysql

import (
	"context"
	"slices"
	"time"
)

const (
	pollRest   = 2   // the poller pauses at least so many times as long as a poll took, but at most pollMost
	pollQueues = 100 // queues in one statement
)

// run is the poller's goroutine.
func (p *poller) run() {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-p.wake:
		case <-p.d.ctx.Done():
			return
		}
		pause, more := p.step()
		if !more {
			return
		}
		t.Reset(pause)
	}
}

// step sends the heartbeat, polls, and claims. It returns how long to pause; false: nobody waits any more.
func (p *poller) step() (pause time.Duration, more bool) {
	ctx, cancel := context.WithTimeout(p.d.ctx, max(p.d.opts.liveness/2, time.Second))
	defer cancel()
	began := time.Now()
	err := p.heartbeat(ctx)
	if err == nil {
		err = p.poll(ctx)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = err
	p.running = len(p.queues) > 0
	if err != nil {
		return pollMost, p.running
	}
	now := time.Now()
	next := p.heartbeatAt.Add(p.d.opts.liveness / 4)
	for _, q := range p.queues {
		if q.due.Before(next) {
			next = q.due
		}
	}
	return max(next.Sub(now), min(pollRest*now.Sub(began), pollMost)), p.running
}

// A poll is a queue that is read for its first waiters.
type poll struct {
	reading
	first []*waiter // those that may be granted: readers, and the first writer
}

// poll reads the heads of the queues that are due, reaps, and claims.
func (p *poller) poll(ctx context.Context) error {
	polls := p.due()
	for some := range slices.Chunk(polls, pollQueues) {
		readings := make([]*reading, len(some))
		for i, q := range some {
			readings[i] = &q.reading
		}
		if err := p.d.heads(ctx, readings); err != nil {
			return err
		}
	}
	var grantable []*waiter
	for _, q := range polls {
		if anyExpired(q.rows) {
			if n, err := p.d.reap(ctx, q.name); err != nil {
				return err
			} else if n > 0 {
				continue // the queue has moved, and is still due
			}
		}
		ready, more := q.judge()
		grantable = append(grantable, ready...)
		p.plan(q, len(ready) > 0, more)
	}
	return p.claim(ctx, grantable)
}

// due returns what to read of each queue that is due, or nearly due, so that queues that seldom move are
// read together.
func (p *poller) due() (polls []*poll) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for _, q := range p.queues {
		if q.due.Sub(now) > q.interval/pollEarly {
			continue
		}
		r := &poll{reading: reading{name: q.name, most: max(q.most, headLeast)}}
		for _, w := range q.waiters {
			r.first = append(r.first, w)
			r.most = max(r.most, w.enough())
			if !w.shared {
				break // no ticket after it is granted
			}
		}
		q.due = time.Time{} // add and moved set it again meanwhile
		polls = append(polls, r)
	}
	return polls
}

// judge returns the waiters that are granted, and whether more has to be read.
func (q *poll) judge() (ready []*waiter, more bool) {
	for _, w := range q.first {
		switch w.judge(q.rows, q.most) {
		case granted:
			w.followed = !w.shared && len(q.rows) > 1
			ready = append(ready, w)
		case unsure:
			more = true
		}
	}
	return ready, more
}

// plan sets when to poll a queue again: at once after a grant, since more may follow.
func (p *poller) plan(r *poll, granted, more bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.queues[r.name]
	switch {
	case q == nil:
	case more && r.most < readersMost:
		q.most = 8 * r.most // and it is still due
	default:
		q.most = 0
		now := time.Now()
		q.setInterval(r, now)
		if !granted && q.due.IsZero() {
			q.due = p.next(q, now)
		}
	}
}

// claim grants waiters, those of one TTL in one statement.
func (p *poller) claim(ctx context.Context, grantable []*waiter) error {
	byTTL := make(map[time.Duration][]*waiter)
	for _, w := range grantable {
		byTTL[w.ttl] = append(byTTL[w.ttl], w)
	}
	for ttl, ws := range byTTL {
		now := time.Now()
		for _, w := range ws {
			if w.claimedAt.IsZero() {
				w.claimedAt = now // an earlier claim may have been executed, and not answered
			}
		}
		held, err := p.d.claim(ctx, tokensOf(ws), ttl)
		if err != nil {
			return err
		}
		for _, w := range ws {
			if contains(held, w.token) {
				p.end(w, answer{asked: w.claimedAt})
			}
		}
	}
	return nil
}
