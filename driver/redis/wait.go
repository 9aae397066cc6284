package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisline"
)

// waiter is a ticket of this process that is not known to be granted.
type waiter struct {
	room   *room
	id     string
	shared bool
	ttl    time.Duration
	sure   bool // a grant is to be confirmed before it is told of
	token  uint64
	joined time.Time // before the request that took the ticket was sent
	state  atomic.Int32
	claim  atomic.Int64  // milliseconds that a grant stands before it is confirmed; 0: not told
	wake   chan struct{} // state has changed
}

// What a waiter has been told.
const (
	waiting = iota
	granted
	gone
)

// verdict is what a waiter has been told, and for how many milliseconds a grant
// stands before it is confirmed (0: not told).
type verdict struct {
	state int32
	claim int64
}

func (w *waiter) told(v verdict) {
	w.claim.Store(v.claim)
	w.set(v.state)
}

func (w *waiter) set(state int32) {
	w.state.Store(state)
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// room is where this process's waiters for one name wait. They share one
// heartbeat, which also looks whether the line has moved without a notice.
type room struct {
	name    string
	waiters map[string]*waiter
	alarm   redisline.Alarm // for the next heartbeat
	beating bool
	again   time.Time     // when, besides, one was wanted meanwhile; zero: no
	all     bool          // the next heartbeat asks after all tickets
	good    time.Time     // when the last request was sent that the store has answered
	every   time.Duration // between heartbeats
	retry   time.Duration // after a failed one
	poll    time.Duration // for a foreign holder's release
	lastErr error         // of the last heartbeat
}

// enter makes a waiter of a ticket that stands in line, and begins its
// heartbeats. Its grant may have been told already.
func (d *Driver) enter(r driver.Request, a answer, joined time.Time) *waiter {
	w := &waiter{
		id: r.ID, shared: r.Shared, ttl: r.TTL, token: a.token, sure: d.durable || r.MinHold > 0,
		joined: joined, wake: make(chan struct{}, 1),
	}
	d.mu.Lock()
	rm := d.rooms[r.Name]
	if rm == nil {
		rm = &room{name: r.Name, waiters: make(map[string]*waiter), every: redisline.Heartbeat}
		d.rooms[r.Name] = rm
	}
	rm.every = min(rm.every, max(redisline.Quickest, r.TTL))
	if rm.good.IsZero() {
		rm.good = joined
	}
	w.room = rm
	rm.waiters[w.id] = w
	d.waiters[w.id] = w
	if v, ok := d.early[w.id]; ok {
		w.told(v)
		delete(d.early, w.id)
	}
	d.mu.Unlock()
	d.plan(rm, a.outlook)
	return w
}

// tooEarly keeps a notice for a ticket that is not waiting here yet, or not
// any more; with mu held. What is forgotten, a heartbeat finds out.
func (d *Driver) tooEarly(id string, v verdict) {
	const most = 1000
	if len(d.early) >= most {
		clear(d.early)
	}
	d.early[id] = v
}

func (d *Driver) leave(w *waiter) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rm := w.room
	delete(d.waiters, w.id)
	delete(rm.waiters, w.id)
	if len(rm.waiters) == 0 && d.rooms[rm.name] == rm {
		delete(d.rooms, rm.name)
		rm.alarm.Stop()
	}
}

// wait returns when the ticket is granted, gone, or not wanted any more.
func (d *Driver) wait(ctx context.Context, w *waiter) (driver.Grant, error) {
	delay := retryFirst
	for {
		select {
		case <-w.wake:
		case <-ctx.Done():
			return driver.Grant{}, errors.Join(context.Cause(ctx), d.outage(w.room))
		case <-d.closing:
			return driver.Grant{}, driver.ErrClosed
		}
		switch w.state.Load() {
		case gone:
			return driver.Grant{}, driver.ErrLost
		case granted:
			if g, ok := d.claimed(w); ok {
				return g, nil
			}
			g, err := d.confirm(ctx, w)
			if err == nil || errors.Is(err, driver.ErrLost) || errors.Is(err, redisline.ErrReplicas) {
				return g, err
			}
			if isContextEnd(ctx, err) || errors.Is(err, driver.ErrClosed) {
				return g, err
			}
			d.failed(w.room, err)
			w.later(delay)
			delay = min(2*delay, retryMost)
		}
	}
}

const (
	retryFirst = 20 * time.Millisecond
	retryMost  = 500 * time.Millisecond
)

func (w *waiter) later(d time.Duration) {
	time.AfterFunc(d, func() { w.set(w.state.Load()) })
}

func isContextEnd(ctx context.Context, err error) bool {
	return ctx.Err() != nil && errors.Is(err, context.Cause(ctx))
}

// claimed answers with the claim of a ticket that has not waited long: the
// server granted it after it had taken the ticket, so that the claim counts
// from when that was asked for at the earliest. Not where replicas have to
// acknowledge the grant first, nor where the lease has to last though the process
// ends, nor for a lease that is shorter than the claim.
func (d *Driver) claimed(w *waiter) (driver.Grant, bool) {
	claim := time.Duration(w.claim.Load()) * time.Millisecond
	if w.sure || w.ttl < claim || time.Since(w.joined) > claim/2 {
		return driver.Grant{}, false
	}
	return driver.Grant{Token: w.token, Asked: w.joined, Claim: claim}, true
}

// confirm begins the lease of a ticket that was granted. ErrLost says that the
// claim has lapsed.
func (d *Driver) confirm(ctx context.Context, w *waiter) (driver.Grant, error) {
	asked := time.Now()
	err := d.Renew(ctx, driver.Hold{Name: w.room.name, ID: w.id, Shared: w.shared}, w.ttl)
	return driver.Grant{Token: w.token, Asked: asked}, err
}

// outage is what keeps a room's waiters from hearing of the store, if anything.
func (d *Driver) outage(rm *room) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return errors.Join(rm.lastErr, redisline.Unavailable(d.listener.Err()))
}

func (d *Driver) failed(rm *room, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rm.lastErr = err
}

// hear is called with each notice to this process.
func (d *Driver) hear(notice string) {
	if notice == "" {
		return
	}
	what := notice[1:]
	switch notice[0] {
	case noticeGranted:
		ms, id, _ := strings.Cut(what, " ")
		claim, _ := strconv.ParseInt(ms, 10, 64) // not told: to be confirmed first
		d.hearVerdict(id, verdict{granted, claim})
	case noticeGone:
		d.hearVerdict(what, verdict{state: gone})
	case noticeLook:
		d.hearLook(what)
	case noticeLost:
		d.hearLoss(what)
	}
}

func (d *Driver) hearVerdict(id string, v verdict) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w := d.waiters[id]; w != nil {
		w.told(v)
	} else {
		d.tooEarly(id, v)
	}
}

// hearLook sets a heartbeat for when a claim ends that may be a dead
// process's: "ms key".
func (d *Driver) hearLook(s string) {
	after, key, _ := strings.Cut(s, " ")
	ms, err := strconv.Atoi(after)
	name, ok := d.keys.Name(key)
	if err != nil || !ok {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if rm := d.rooms[name]; rm != nil {
		d.beatAt(rm, time.Now().Add(time.Duration(ms+1)*time.Millisecond))
	}
}

// plan sets the next heartbeat of a room after what the store has said.
func (d *Driver) plan(rm *room, o redisline.Outlook) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rm.lastErr, rm.retry = nil, 0
	after := rm.every
	if o.Look && o.After >= 0 {
		after = min(after, o.After+time.Millisecond)
	}
	if o.Look && o.Foreign {
		rm.poll = min(max(2*rm.poll, redisline.PollFirst), redisline.PollMost)
		after = min(after, rm.poll)
	} else {
		rm.poll = 0
	}
	d.beatAt(rm, time.Now().Add(after))
}

// beatAt sets the next heartbeat, unless an earlier one is set; with mu held.
func (d *Driver) beatAt(rm *room, t time.Time) {
	if d.closed || len(rm.waiters) == 0 {
		return
	}
	if rm.beating {
		if rm.again.IsZero() || t.Before(rm.again) {
			rm.again = t
		}
		return
	}
	rm.alarm.Set(t, func() { d.beat(rm) })
}

// beatBound is when a heartbeat without an answer is given up.
const beatBound = 2 * time.Second

// beat shows the store that this process lives and wants its tickets, and
// takes in how the line stands. It asks after some of the tickets only.
func (d *Driver) beat(rm *room) {
	if !d.begin() {
		return
	}
	defer d.work.Done()
	d.mu.Lock()
	rm.alarm.Rung()
	if rm.beating || len(rm.waiters) == 0 {
		d.beatAt(rm, time.Now())
		d.mu.Unlock()
		return
	}
	rm.beating, rm.again = true, time.Time{}
	asked := redisline.Sample(rm.waiters, rm.all)
	whole := len(asked) == len(rm.waiters)
	rm.all = false
	begun := time.Now()
	d.mu.Unlock()

	o, err := d.ping(rm, asked)

	d.mu.Lock()
	rm.beating = false
	if err == nil {
		if !whole && time.Since(rm.good) > redisline.Liveness {
			// This process or the store stood still: all tickets may be gone.
			rm.all = true
			d.beatAt(rm, time.Now())
		}
		rm.good = begun
	}
	if !rm.again.IsZero() {
		d.beatAt(rm, rm.again)
	}
	d.mu.Unlock()
	if err != nil {
		d.beatFailed(rm, err)
		return
	}
	d.plan(rm, o)
}

// beatFailed sets the next heartbeat after one without an answer.
func (d *Driver) beatFailed(rm *room, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rm.lastErr = err
	rm.retry = min(max(2*rm.retry, retryFirst), retryMost)
	d.beatAt(rm, time.Now().Add(rm.retry))
}

// ping sends a heartbeat and tells waiters what has become of them.
func (d *Driver) ping(rm *room, asked []*waiter) (redisline.Outlook, error) {
	ctx, cancel := context.WithTimeout(d.ctx, beatBound)
	defer cancel()
	args := make([]any, 0, 1+len(asked))
	args = append(args, d.channel)
	for _, w := range asked {
		args = append(args, redisline.Kind(w.shared)+w.id)
	}
	v, err := d.do(ctx, d.call(redisline.Beat, d.keys.All(d.keys.Main(rm.name)), args...))
	if errors.Is(err, context.DeadlineExceeded) {
		err = driver.Unavailable(fmt.Errorf("redis: no answer within %v", beatBound))
	}
	if err != nil {
		return redisline.Outlook{}, err
	}
	reply, err := redisline.Ints("beat", v, 2+len(asked))
	if err != nil {
		return redisline.Outlook{}, err
	}
	for i, w := range asked {
		switch reply[2+i] {
		case 0:
			w.set(gone)
		case 2:
			w.set(granted)
		}
	}
	return redisline.ParseOutlook(reply[0], reply[1]), nil
}

// recheck asks after all tickets: notices may have been missed.
func (d *Driver) recheck() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, rm := range d.rooms {
		rm.all = true
		d.beatAt(rm, time.Now())
	}
}
