package casqueue

import (
	"cmp"
	"context"
	"sync"
	"time"
)

// Poll intervals of a process that waits.
const (
	leastPoll   = 250 * time.Microsecond
	shortPause  = 2 * time.Millisecond   // Go's timers may be late by half of it
	mostPoll    = 50 * time.Millisecond  // while one of its tickets is the next of its queue
	othersPoll  = 90 * time.Millisecond  // otherwise: a grant is known within 100 ms, after two requests (D13)
	pollPart    = 8                      // the interval is this part of the time for which that ticket has not moved
	restPart    = 3                      // the interval is at least this many times as long as a poll takes
	handOffPart = 4                      // a hand-off takes about this many times as long as a poll
	slowestPoll = 250 * time.Millisecond // of a slow store
	failedPoll  = 200 * time.Millisecond // while the store does not answer
	mostFollow  = 10 * time.Second       // between two attempts to watch, if the store refuses
	rescan      = 250 * time.Millisecond // of all waiting tickets
)

// attendant is the background task: the state of a process that waits.
type attendant struct {
	e       *Engine
	news    string // the last notification
	watched bool   // the store reports them
	failed  bool   // the last request has failed

	shortest time.Duration // life of a waiting ticket
	next     time.Time     // when a ticket last became the next; zero: none is
	soon     time.Duration // a part of the estimated time until another becomes the next
	anyWaits bool          // some ticket waits
	polls    bool          // … and nobody notifies this process of its grant
	hears    bool          // some ticket waits for a notification
	scanned  time.Time

	polled, readAt, heartbeat, sampled time.Time
	sampling                           time.Duration // the interval
	took                               time.Duration // by a poll, on the average
}

// wakeTask wakes the background task. With mu held, or not.
func (e *Engine) wakeTask() {
	select {
	case e.wake <- struct{}{}:
	default:
	}
}

// attend is the background task, from the first ticket that waits until Close.
func (e *Engine) attend() {
	a := &attendant{e: e}
	if w, ok := e.store.(Watcher); ok {
		e.life.Go(func() { e.follow(w) })
	}
	timer := time.NewTimer(1) // one that is over when it is set can crash the race detector in a bubble
	defer timer.Stop()
	for {
		select {
		case <-e.life.Done():
			return
		case <-e.wake:
			a.scanned = time.Time{}
			a.sampling = min(a.sampling, sampleEvery(e.minTTL())) // the lease that the new ticket waits for may be the shortest
		case <-timer.C:
		}
		a.scan()
		if a.anyWaits {
			a.step()
			a.scan()
			pause := max(time.Until(a.due()), 1)
			if e.opts.Pause != nil && pause < shortPause && e.opts.Pause(pause) {
				pause = 1
			}
			timer.Reset(pause)
		}
	}
}

// scan notes what the background task has to know of the waiting tickets.
func (a *attendant) scan() {
	now := time.Now()
	if now.Sub(a.scanned) < rescan {
		return
	}
	a.scanned = now
	a.e.mu.Lock()
	defer a.e.mu.Unlock()
	a.anyWaits, a.next, a.soon, a.shortest = false, time.Time{}, mostSample, liveness
	a.polls, a.hears = false, false
	for t := range a.e.waiting {
		a.anyWaits, a.polls, a.hears = true, a.polls || t.polls, a.hears || !t.polls
		a.shortest = min(a.shortest, t.life())
		if t.ahead > 0 || t.moved.IsZero() {
			a.soon = min(a.soon, t.soon(a.readAt, handOffPart*a.took))
		} else if t.moved.After(a.next) {
			a.next = t.moved
		}
	}
	a.heartbeat = a.e.heartbeat
	if a.watched = a.e.watches; a.e.notified {
		a.e.notified, a.polled = false, time.Time{}
	}
}

// soon is how long after the last reading the ticket's queue is read again, to find the ticket as the next: after a part of
// the estimated time, and also of the time for which the ticket had not moved. So a queue that stands is read less and less
// often, whatever the readings find: a document that cannot be read, or a ticket that is granted already. With mu held.
func (t *ticket) soon(readAt time.Time, handOff time.Duration) time.Duration {
	each := min(t.file.doc.find(t.name).Hold, mostSample) + handOff
	return max(leastPoll, each*time.Duration(t.ahead)*2/3, readAt.Sub(t.moved)/pollPart)
}

// interval is the poll interval. A poller rests for longer than the store takes to answer, so that the pollers of many
// processes do not overload a slow store.
func (a *attendant) interval() time.Duration {
	switch {
	case a.failed:
		return failedPoll
	case a.watched:
		return mostSample
	}
	interval := min(a.readAt.Add(a.soon).Sub(a.polled), othersPoll) // of that reading, and no poll just before it
	if !a.next.IsZero() {
		interval = min(time.Since(a.next)/pollPart, mostPoll)
	}
	return max(interval, leastPoll, min(restPart*a.took, slowestPoll))
}

// due is when the next poll, heartbeat or sample is.
func (a *attendant) due() time.Time {
	at := a.polled.Add(a.interval())
	for _, other := range []time.Time{a.heartbeatDue(), a.sampled.Add(a.sampling)} {
		if other.Before(at) && !a.failed {
			at = other
		}
	}
	return at
}

// heartbeatDue is when the next heartbeat is: several in the life of a ticket, so that a grant finds a recent one.
func (a *attendant) heartbeatDue() time.Time { return a.heartbeat.Add(a.shortest / 4) }

// step does what is due.
func (a *attendant) step() {
	now := time.Now()
	var unsent, unread error
	if !now.Before(a.heartbeatDue()) {
		if unsent = a.e.sendHeartbeat(a.e.life); unsent == nil {
			a.heartbeat = now
		}
	}
	switch {
	case a.failed || !now.Before(a.sampled.Add(a.sampling)):
		if unread = a.sample(now); a.watched {
			a.polled = now // the queues were read
		}
	case !now.Before(a.polled.Add(a.interval())):
		unread = a.poll(now)
		if took := time.Since(now); a.took == 0 {
			a.took = took
		} else {
			a.took = average(a.took, took)
		}
	}
	if a.failed = unsent != nil || unread != nil; a.failed {
		a.polled = now
	}
}

// poll reads the notifications and, if there is a new one, the queues. It reads the queues at once if the store has
// reported a notification, or if a ticket is estimated to be the next before a notification would be seen. It reads the
// queue of tickets without notifications each time: then the release itself is seen, with one request.
func (a *attendant) poll(now time.Time) error {
	a.polled = now
	if a.watched || !a.hears || a.next.IsZero() && now.Sub(a.readAt) >= a.soon {
		return a.readQueues()
	}
	var both sync.WaitGroup
	var unread error
	if a.polls {
		a.scanned = time.Time{}
		both.Go(func() { unread = a.e.sample(a.e.life, nil, a.e.waitedFor(func(t *ticket) bool { return t.polls })) })
	}
	docs, err := a.e.store.Get(a.e.life, a.e.notifyKey(a.e.process))
	a.e.answered(err)
	both.Wait()
	if err = cmp.Or(err, unread); err != nil {
		return err
	}
	news := string(docs[0].Value)
	if news == "" || news == a.news {
		return nil
	}
	a.news = news
	return a.readQueues()
}

// readQueues reads the queues.
func (a *attendant) readQueues() error {
	a.readAt, a.scanned = time.Now(), time.Time{}
	return a.e.sample(a.e.life, nil, a.e.waitedFor(anyTicket))
}

// sample reads all that decides about the tickets ahead of those that wait, and removes the expired ones of the queues
// that were read.
func (a *attendant) sample(now time.Time) error {
	e := a.e
	a.sampled, a.sampling = now, mostSample
	files := e.waitedFor(anyTicket)
	processes := make(map[string]struct{})
	e.mu.Lock()
	for f := range files {
		for _, q := range f.doc.Queues {
			a.sampling = min(a.sampling, e.watch(q, e.lastOwn(q), processes))
		}
	}
	e.mu.Unlock()
	unread := e.sample(e.life, processes, files)
	e.mu.Lock()
	defer e.mu.Unlock()
	for f, err := range files {
		if err != nil {
			continue
		}
		if e.anyExpired(f) {
			c := e.reaping()
			c.ctx = e.life
			e.submit(f, c)
		} else if recall, tell := e.unshared(f); recall || tell {
			e.life.Go(func() {
				if e.consult(e.life, f, tell) {
					_ = e.change(e.life, f.key, e.reaping())
				}
			})
		}
	}
	return unread
}

// waitedFor returns the files in which some tickets of this process wait.
func (e *Engine) waitedFor(some func(*ticket) bool) map[*file]error {
	e.mu.Lock()
	defer e.mu.Unlock()
	files := make(map[*file]error)
	for t := range e.waiting {
		if some(t) {
			files[t.file] = nil
		}
	}
	return files
}

func anyTicket(*ticket) bool { return true }

// lastOwn returns the index of the last waiting ticket of this process, or 0. With mu held.
func (e *Engine) lastOwn(q *queue) int {
	for i := len(q.Tickets) - 1; i >= 0; i-- {
		if t := e.tickets[q.Tickets[i].ID]; t != nil && t.state != held {
			return i
		}
	}
	return 0
}

// sendHeartbeat sends a heartbeat. It lengthens the lives of the tickets that were alive when it was answered.
func (e *Engine) sendHeartbeat(ctx context.Context) error {
	e.mu.Lock()
	content, longest := e.unique(), liveness
	for _, t := range e.tickets {
		longest = max(longest, t.life())
	}
	e.mu.Unlock()
	sent := time.Now()
	// Even a process that observes seldom must find it, until this one may be taken for dead.
	keep := patience(longest) + keepEmpty
	err := e.store.Set(ctx, e.heartbeatKey(e.process), heartbeat(string(content), keep), keep)
	e.answered(err)
	if err != nil {
		return err
	}
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.tickets {
		if !t.fixed && t.renewable(now) && sent.After(t.alive) {
			t.alive = sent
		}
	}
	if sent.After(e.heartbeat) {
		e.heartbeat = sent
	}
	return nil
}
