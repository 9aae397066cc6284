package sqlqueue

import (
	"context"
	"math/rand/v2"
	"time"
)

// task is the background task that keeps the waiting tickets of this process alive, and detects what no notice
// reports. It sends a heartbeat every quarter of the liveness interval, checks queues whose head may have expired, and
// polls for grants while no notices arrive. It costs the same however many tickets wait for a name.
// It runs while something waits.
type task struct {
	e          *Engine
	began      time.Time
	heartbeats int
	next       time.Time     // the next heartbeat
	poll       time.Time     // the next poll
	interval   time.Duration // of polls
}

const (
	taskIdle     = 10 * time.Second // how long it runs after the last wait
	compareEvery = 10               // heartbeats between two comparisons of all tickets, while losses are noticed
	stagger      = 150 * time.Millisecond
	firstPoll    = 100 * time.Millisecond // by then notices arrive
	shortestPoll = 2 * time.Millisecond
	longestPoll  = 250 * time.Millisecond
)

// attend starts the background task, unless it runs.
func (e *Engine) attend() {
	e.start(&e.book.attending, func() {
		t := &task{e: e, began: time.Now(), next: time.Now(), interval: shortestPoll}
		if e.book.isRegistered() {
			t.next = t.next.Add(e.heartbeatEvery())
		}
		if e.opts.Notifier != nil {
			t.poll = time.Now().Add(firstPoll)
		}
		t.run()
	})
}

func (b *book) isRegistered() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.registered
}

func (t *task) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-t.e.book.changed:
		case <-t.e.life.Done():
			return
		}
		now := time.Now()
		if !now.Before(t.next) {
			t.heartbeat()
		}
		if t.e.book.toCompare() {
			t.compare(true)
		}
		t.checkQueues(now)
		if t.e.book.polled() && !now.Before(t.poll) {
			t.pollGrants()
		}
		if process, known, over := t.e.book.idle(); over {
			if known {
				ctx, cancel := t.e.bound(t.e.life)
				defer cancel()
				_ = t.e.store.Leave(ctx, process) // else the row expires
			}
			return
		}
		timer.Reset(time.Until(t.wakeUp()))
	}
}

// idle ends the background task when nothing has waited for a while. It reports whether the database has a row of the
// process, which must be removed.
func (b *book) idle() (process int64, known, over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.byID) > 0 || b.registered && time.Since(b.waited) <= taskIdle {
		return 0, false, false
	}
	b.attending = false
	process, known = b.nextID()
	return process, known, true
}

// polled reports whether grants have to be polled for.
func (b *book) polled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return !b.receiving && len(b.byID) > 0 && b.registered
}

// wakeUp returns when there is something to do next.
func (t *task) wakeUp() time.Time {
	at := t.next
	if t.e.book.polled() && t.poll.Before(at) {
		at = t.poll
	}
	b := &t.e.book
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, n := range b.byName {
		if n.due.Before(at) {
			at = n.due
		}
	}
	return at
}

func (t *task) heartbeat() {
	e, b := t.e, &t.e.book
	t.next = time.Now().Add(e.heartbeatEvery())
	b.mu.Lock()
	process, registered, waits := b.process, b.registered, len(b.byID) > 0
	b.mu.Unlock()
	if !registered && !waits {
		return // whoever waits first sends it
	}
	// If it is not registered although tickets wait, it has expired, or the answer to the first heartbeat was lost.
	ctx, cancel := t.e.bound(t.e.life)
	defer cancel()
	var alive bool
	// After an outage every connection of a pool is broken, which is noticed when it is used. Waiting tickets would
	// expire if each broken connection delayed the heartbeat by an interval.
	granted, err := Repeat(ctx, e, Twice, func() (granted Mine, err error) {
		alive, granted, err = e.heartbeat(ctx, process, !registered)
		return granted, err
	})
	switch {
	case err != nil:
		t.failed(err)
		return
	case !alive:
		b.expired(process)
		return
	}
	if _, late := b.compare(granted, process, false); late {
		signal(b.reconnect) // there was no notice: the listener may be broken
	}
	if t.heartbeats++; t.heartbeats%compareEvery == 0 || b.polled() { // a poll finds grants, and no losses
		t.compare(true)
	}
}

// failed schedules the next heartbeat soon, but not at once, since requests fail immediately while the database is
// down. After the first heartbeat that succeeds, all tickets are compared.
func (t *task) failed(err error) {
	t.e.book.setFault(err)
	if soon := time.Now().Add(min(t.e.heartbeatEvery()/4, longestPoll)); soon.Before(t.next) {
		t.next = soon
	}
}

// compare reads our tickets from the database: all that wait or have a provisional lease, or only the latter. It
// reports whether there were grants without a notice.
func (t *task) compare(all bool) (news bool) {
	process := t.e.book.current()
	ctx, cancel := t.e.bound(t.e.life)
	defer cancel()
	mine, err := t.e.store.Mine(ctx, process, all)
	if err != nil {
		t.failed(err)
		return false
	}
	news, _ = t.e.book.compare(mine, process, all)
	return news
}

// pollGrants polls for grants. After one it polls sooner, because more are likely to follow.
func (t *task) pollGrants() {
	if t.compare(false) {
		t.interval = shortestPoll
	} else {
		t.interval = min(t.interval*5/4+time.Millisecond, t.e.opts.LongestPoll, t.e.heartbeatEvery())
	}
	t.poll = time.Now().Add(t.interval)
}

// checkQueues checks the queues that are due.
func (t *task) checkQueues(now time.Time) {
	names, process := t.e.book.dueNames(now, DueMost)
	if len(names) == 0 {
		return
	}
	ctx, cancel := t.e.bound(t.e.life)
	defer cancel()
	due, err := t.e.store.Due(ctx, process, names)
	for i, name := range names {
		wait := min(t.e.heartbeatEvery(), longestPoll)
		if err == nil {
			wait = t.act(ctx, name, process, due[i])
		}
		t.e.book.setDue(name, time.Now().Add(wait))
	}
}

// act does what is due in a queue, and returns how soon to check again. The process of the first waiter checks exactly
// at the end of the lease ahead, and others a little later, so that they do not all act at once. That end may come sooner
// than the database has said (Shorten), of which a process without notices has to learn by itself. A process that
// waits for very many names checks its queues less often.
func (t *task) act(ctx context.Context, name string, process int64, due Due) time.Duration {
	b := &t.e.book
	if due.In < 0 {
		ctx = context.WithValue(ctx, haste{}, nil) // it may wait in the database
		grants, _ := Repeat(ctx, t.e, Twice, func() ([]Grant, error) { return t.e.store.Advance(ctx, process, name) })
		t.e.deliver(grants)                           // after an error the next time
		return min(t.e.heartbeatEvery(), longestPoll) // it may have to wait for a transaction that guards a ticket
	}
	wait := due.In + time.Millisecond
	if !due.First {
		wait += rand.N(stagger)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	longest := t.e.heartbeatEvery()
	if due.First && !b.receiving {
		longest = min(longest, longestPoll)
	}
	if longest = max(longest, time.Duration(len(b.byName))*time.Millisecond); wait <= longest {
		return wait
	}
	return longest - time.Since(t.began)%longest // nothing is due by then: queues are checked together
}
