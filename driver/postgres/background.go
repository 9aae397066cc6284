package postgres

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// task is the background task that keeps the waiting tickets of this process alive, and detects what no notification
// reports. It sends a heartbeat every quarter of the liveness interval, checks queues whose head may have expired, and
// polls for grants while there is no connection to LISTEN on. It costs the same however many tickets wait for a name.
// It runs while something waits.
type task struct {
	d          *Driver
	heartbeats int
	next       time.Time     // the next heartbeat
	poll       time.Time     // the next poll
	interval   time.Duration // of polls
}

const (
	taskIdle     = 10 * time.Second // how long it runs after the last wait
	compareEvery = 10               // heartbeats between two comparisons of all tickets
	checkMost    = 1000             // names in one statement
	stagger      = 150 * time.Millisecond
	firstPoll    = 100 * time.Millisecond // by then there is a connection to LISTEN on
	shortestPoll = 2 * time.Millisecond
	longestPoll  = 250 * time.Millisecond

	// What is due in a queue may have to wait for a transaction that guards a ticket: then the queue is checked after an
	// eighth of the time that this has lasted, within these bounds.
	stuckShare    = 8
	shortestStuck = 50 * time.Millisecond
	longestStuck  = 500 * time.Millisecond
)

// attend starts the background task, unless it runs.
func (d *Driver) attend() {
	d.start(&d.waiters.attending, func() {
		t := &task{d: d, next: time.Now(), interval: shortestPoll}
		if d.waiters.isRegistered() {
			t.next = t.next.Add(d.heartbeatEvery())
		}
		if d.opts.listen {
			t.poll = time.Now().Add(firstPoll)
		}
		t.run()
	})
}

func (ws *waiters) isRegistered() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.registered
}

func (t *task) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-t.d.waiters.changed:
		case <-t.d.ctx.Done():
			return
		}
		now := time.Now()
		if !now.Before(t.next) {
			t.heartbeat()
		}
		if t.d.waiters.takeMissed() {
			t.compare(true)
		}
		t.checkQueues(now)
		if t.d.waiters.polled() && !now.Before(t.poll) {
			t.pollGrants()
		}
		if process, known, over := t.d.waiters.idle(); over {
			if known {
				ctx, cancel := t.bound()
				defer cancel()
				t.d.leave(ctx, process)
			}
			return
		}
		timer.Reset(time.Until(t.wakeUp()))
	}
}

// idle ends the background task when nothing has waited for a while. It reports whether the database has a row of the
// process, which must be removed.
func (ws *waiters) idle() (process int64, known, over bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.byID) > 0 || ws.registered && time.Since(ws.waited) <= taskIdle {
		return 0, false, false
	}
	ws.attending = false
	process, known = ws.process, ws.registered
	ws.nextID()
	return process, known, true
}

// polled reports whether grants have to be polled for.
func (ws *waiters) polled() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return !ws.receiving && len(ws.byID) > 0 && ws.registered
}

// wakeUp returns when there is something to do next.
func (t *task) wakeUp() time.Time {
	at := t.next
	if t.d.waiters.polled() && t.poll.Before(at) {
		at = t.poll
	}
	ws := &t.d.waiters
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, n := range ws.byName {
		if n.due.Before(at) {
			at = n.due
		}
	}
	return at
}

// bound bounds a request of the task, so that the next one does not wait for a request that hangs.
func (t *task) bound() (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.d.ctx, max(t.d.heartbeatEvery(), 100*time.Millisecond))
}

func (t *task) heartbeat() {
	d, ws := t.d, &t.d.waiters
	t.next = time.Now().Add(d.heartbeatEvery())
	ws.mu.Lock()
	process, registered, waits := ws.process, ws.registered, len(ws.byID) > 0
	ws.mu.Unlock()
	if !registered && !waits {
		return
	}
	// If it is not registered although tickets wait, it has expired, or the answer to the first heartbeat was lost.
	ctx, cancel := t.bound()
	defer cancel()
	var asked time.Time
	var alive bool
	// After an outage every connection of the pool is broken, which is noticed when it is used. Waiting tickets would
	// expire if each broken connection delayed the heartbeat by an interval.
	granted, err := repeat(ctx, d, true, func() (granted []ticketRow, err error) {
		asked = time.Now()
		alive, granted, err = d.heartbeat(ctx, process, !registered)
		return granted, err
	})
	switch {
	case err != nil:
		t.failed(err)
		return
	case !alive:
		ws.expired(process)
		return
	}
	if t.settle(ctx, granted, process, asked, false) {
		signal(ws.reconnect) // there was no notification: the connection may be broken
	}
	if t.heartbeats++; t.heartbeats%compareEvery == 0 {
		t.compare(true)
	}
}

// failed schedules the next heartbeat soon, but not at once, since requests fail immediately while the database is
// down. After the first heartbeat that succeeds, all tickets are compared.
func (t *task) failed(err error) {
	t.d.waiters.setFault(err)
	if soon := time.Now().Add(min(t.d.heartbeatEvery()/4, longestPoll)); soon.Before(t.next) {
		t.next = soon
	}
}

// compare reads our tickets from the database: all that wait or have a provisional lease, or only the latter. It
// reports whether there were grants without a notification.
func (t *task) compare(all bool) (news bool) {
	d := t.d
	sql := d.w.provisional
	if all {
		sql = d.w.queued
	}
	process := d.waiters.current()
	ctx, cancel := t.bound()
	defer cancel()
	var asked time.Time
	rows, err := query(ctx, d, sending{sent: &asked}, rowTicket(new(int64)), sql, process)
	if err != nil {
		t.failed(err)
		return false
	}
	return t.settle(ctx, rows, process, asked, all)
}

// settle compares the rows with what is known, and releases the orphans.
func (t *task) settle(ctx context.Context, rows []ticketRow, process int64, asked time.Time, all bool) (news bool) {
	orphans, news := t.d.waiters.compare(rows, process, asked, all)
	for _, o := range orphans {
		_, _ = t.d.call(ctx, nil, t.d.w.release, []byte(o.name), o.id, process) // else next time
	}
	return news
}

// pollGrants polls for grants. After one it polls sooner, because more are likely to follow.
func (t *task) pollGrants() {
	if t.compare(false) {
		t.interval = shortestPoll
	} else {
		t.interval = min(t.interval*5/4+time.Millisecond, longestPoll, t.d.heartbeatEvery())
	}
	t.poll = time.Now().Add(t.interval)
}

// checkQueues checks the queues that are due.
func (t *task) checkQueues(now time.Time) {
	d := t.d
	names, process := d.waiters.dueNames(now, checkMost)
	if len(names) == 0 {
		return
	}
	ctx, cancel := t.bound()
	defer cancel()
	args := make([][]byte, len(names))
	for i, n := range names {
		args[i] = []byte(n)
	}
	rows, err := query(ctx, d, sending{}, pgx.RowToStructByPos[dueRow], d.w.due, args, process)
	waits := make(map[string]time.Duration, len(names))
	for _, r := range rows {
		name := names[r.I-1]
		waits[name] = t.act(ctx, name, process, r)
	}
	for _, name := range names {
		wait, ok := waits[name]
		if err != nil || !ok {
			wait = min(d.heartbeatEvery(), longestPoll)
		}
		d.waiters.setDue(name, time.Now().Add(wait))
	}
}

// dueRow is what the database answers about a queue.
type dueRow struct {
	I     int64
	Due   int64 // microseconds; -1: there is something to do now
	First bool  // the first waiter is of this process
}

// act does what is due in a queue, and returns how soon to check again. The process of the first waiter checks exactly
// at the end of the lease ahead, and others a little later, so that they do not all act at once. That end may come sooner
// than the database has said (Shorten), of which a process without notifications has to learn by itself. A process that
// waits for very many names checks its queues less often.
func (t *task) act(ctx context.Context, name string, process int64, r dueRow) time.Duration {
	if r.Due < 0 {
		_, _ = t.d.call(ctx, nil, t.d.w.advance, []byte(name), process) // else the next time
		return min(max(t.d.waiters.stuckFor(name)/stuckShare, shortestStuck), longestStuck)
	}
	t.d.waiters.moved(name)
	wait := time.Duration(r.Due)*time.Microsecond + time.Millisecond
	if !r.First {
		wait += rand.N(stagger)
	}
	t.d.waiters.mu.Lock()
	defer t.d.waiters.mu.Unlock()
	longest := t.d.heartbeatEvery()
	if r.First && !t.d.waiters.receiving {
		longest = min(longest, longestPoll)
	}
	return min(wait, max(longest, time.Duration(len(t.d.waiters.byName))*time.Millisecond))
}
