package casqueue

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// observation is what a process has seen of a ticket, in the ticket's record for those that come later: the record as it
// is, and that heartbeat of its process, were there at a time of the store's clock. Nothing has changed since then if
// both are still there.
type observation struct {
	Clock     string        `json:"c"`
	At        time.Duration `json:"t"`           // at the latest
	Heartbeat string        `json:"h,omitempty"` // empty: there was none, or the lease has none
}

// consult shares what was observed of a queue with other processes, and reports whether tickets have expired.
func (e *Engine) consult(ctx context.Context, f *file, tell bool) bool {
	_ = e.share(ctx, f, tell) // what this process does not learn, it has to observe
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.anyExpired(f)
}

// share takes over what others have observed of the tickets that this process observes, once for each ticket. With tell
// it also writes what it has seen itself, if they do not know it yet.
//
// The clock is read before the heartbeats that confirm an old observation, and after those of a new one. So the time
// between the two readings of the clock is not longer than that between the observations.
func (e *Engine) share(ctx context.Context, f *file, tell bool) error {
	clock, ok := e.store.(Clock)
	if !ok {
		return nil
	}
	e.mu.Lock()
	recall, news := e.unshared(f)
	tell = tell && (news || e.untold(f))
	if f.sharing || !recall && !tell {
		e.mu.Unlock()
		return nil
	}
	f.sharing = true
	e.mu.Unlock()
	err := e.exchange(ctx, clock, f, recall, tell)
	e.mu.Lock()
	defer e.mu.Unlock()
	f.sharing = false
	if tell && err == nil {
		f.told = time.Now()
	}
	return err
}

// exchange does what share has found to do.
func (e *Engine) exchange(ctx context.Context, clock Clock, f *file, recall, tell bool) (err error) {
	var now Time
	if recall {
		if now, err = e.time(ctx, clock); err != nil {
			return err
		}
	}
	read := time.Now()
	late := read // which readings of heartbeats are too old
	if !recall {
		late = read.Add(-leastSample)
	}
	for first := true; ; first = false {
		processes := e.processes(f, late)
		if len(processes) == 0 && !first {
			break
		}
		if err := e.sample(ctx, processes, nil); err != nil {
			return err
		}
		if recall {
			e.recallAll(f, now, read) // those that prove to be silent are not alone: more are observed then
		}
	}
	if tell && e.news(f) {
		return e.tell(ctx, clock, f)
	}
	return nil
}

// recallAll takes over what others have observed. The clock showed now before the heartbeats were read.
func (e *Engine) recallAll(f *file, now Time, read time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.observe(f, func(r *record) { e.recall(r, now, read) })
}

// news reports whether this process has seen something that others do not know, of tickets that it does not remove anyway.
func (e *Engine) news(f *file) (news bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	e.observe(f, func(r *record) { news = news || !e.confirms(r) && !e.expired(r, now) })
	return news
}

// observe calls do for the tickets of others that block this process: all that are ahead of its last ticket that waits or, if none
// waits, in the whole queue. With mu held.
func (e *Engine) observe(f *file, do func(r *record)) {
	now := time.Now()
	for _, q := range f.doc.Queues {
		before := e.lastOwn(q)
		if before == 0 {
			before = len(q.Tickets)
		}
		for r := range e.observed(q, before, now) {
			if r.Process != e.process { // its sign of life is that of the other tickets of this process
				do(r)
			}
		}
	}
}

// processes returns the processes whose heartbeats show that the observed tickets live, and were read before late.
func (e *Engine) processes(f *file, late time.Time) map[string]struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	processes := make(map[string]struct{})
	e.observe(f, func(r *record) {
		if b := e.heartbeats[r.Process]; !r.ownLease() && (b == nil || b.asked.Before(late)) {
			processes[r.Process] = struct{}{}
		}
	})
	return processes
}

// unshared reports whether there are observations of others to recall, and whether this process knows of a silence that
// they may not know, and has to tell them: the process that is the next does. With mu held.
func (e *Engine) unshared(f *file) (recall, tell bool) {
	now := time.Now()
	e.observe(f, func(r *record) {
		recall = recall || r.Observed != nil && !r.recalled
		tell = tell || e.silent(r, now) && !e.confirms(r)
	})
	return recall, tell && slices.ContainsFunc(f.doc.Queues, func(q *queue) bool { return e.leads(q, now) })
}

// leads reports whether no other process that lives waits ahead of this one. With mu held.
func (e *Engine) leads(q *queue, now time.Time) bool {
	for i, granted := range driver.Granted(q.views()) {
		r := &q.Tickets[i]
		switch {
		case granted:
		case e.tickets[r.ID] != nil:
			return true
		case !e.silent(r, now):
			return false
		}
	}
	return false
}

// untold reports whether this process has seen something since it last told others, a while ago. With mu held.
func (e *Engine) untold(f *file) (untold bool) {
	now := time.Now()
	e.observe(f, func(r *record) {
		since, _ := e.silence(r, now)
		untold = untold || since.After(f.told)
	})
	return untold && now.Sub(f.told) >= mostSample
}

// sign returns the heartbeat that shows that a ticket lives, as this process has seen it last. With mu held.
func (e *Engine) sign(r *record) string {
	if b := e.heartbeats[r.Process]; b != nil && !r.ownLease() {
		return b.content
	}
	return ""
}

// confirms reports whether nothing has changed since a ticket was observed, by the present clock. A heartbeat that the store
// has forgotten has changed: there may have been others before it. With mu held.
func (e *Engine) confirms(r *record) bool {
	o := r.Observed
	return o != nil && (o.Clock == e.clock || e.clock == "") && o.Heartbeat == e.sign(r)
}

// recall takes over what others have observed of a ticket. With mu held.
func (e *Engine) recall(r *record, now Time, read time.Time) {
	if r.recalled = true; !e.confirms(r) || r.Observed.Clock != now.Clock { // another call may have read another clock since
		return
	}
	since := read.Add(r.Observed.At - now.Earliest) // after read, if it was observed later than that
	if since.Before(r.seen) {
		r.seen = since
	}
	if b := e.heartbeats[r.Process]; b != nil && !r.ownLease() && since.Before(b.since) {
		b.since = since
	}
}

// tell writes what this process has observed. If others change the document meanwhile, it gives up soon: what they do
// may be more urgent.
func (e *Engine) tell(ctx context.Context, clock Clock, f *file) error {
	asked := time.Now()
	now, err := e.time(ctx, clock)
	if err != nil {
		return err
	}
	seen := make(map[string]record)
	e.mu.Lock()
	e.observe(f, func(r *record) {
		since, _ := e.silence(r, asked)
		if r.seen.IsZero() || since.After(asked) || e.confirms(r) {
			return // it may have changed after the clock was read
		}
		o := *r
		o.Observed = &observation{now.Clock, now.Latest - asked.Sub(since), e.sign(r)}
		seen[r.ID] = o
	})
	heartbeats := e.neededHeartbeats(f.doc, seen)
	e.mu.Unlock()
	var kept sync.WaitGroup
	defer kept.Wait()
	kept.Go(func() { // beside the change: who visits for a moment has no time for one after the other
		slots := make(chan struct{}, inFlight)
		for process, h := range heartbeats {
			slots <- struct{}{}
			kept.Go(func() {
				defer func() { <-slots }()
				_, err := e.store.Put(ctx, e.heartbeatKey(process), heartbeat(h.content, h.keep), h.version, h.keep)
				e.answered(err)
			})
		}
	})
	c := &change{queues: true} // it leaves as much space for leases as a ticket does
	tried := 0
	c.apply = func(d *document, _ bool) (changed bool, err error) {
		if tried++; tried > tries {
			return false, nil
		}
		for _, q := range d.Queues {
			for i := range q.Tickets {
				r := &q.Tickets[i]
				if o, ok := seen[r.ID]; ok && r.same(&o) && !e.confirms(r) {
					r.Observed, r.recalled, changed = o.Observed, true, true
				}
			}
		}
		return changed, nil
	}
	return e.change(ctx, f.key, c)
}

// keepSeen is how long the store keeps a heartbeat of which others were told, after the ticket can be taken for dead, but no
// longer than the document: the next visitor may come late.
const keepSeen = 2 * time.Minute

// neededHeartbeats returns the heartbeats, by process, that the store may have forgotten when what was seen of a ticket is to be
// confirmed. Only tickets that block count: the holders, and the waiter that is the next. Those behind it send heartbeats as
// long as they live, and may be observed when they are the next. No heartbeat is kept for less than its process wants, or another
// visitor: there may be tickets that live longer in other documents. With mu held.
func (e *Engine) neededHeartbeats(d *document, seen map[string]record) map[string]sighting {
	all := make(map[string]sighting)
	for _, q := range d.Queues {
		waits := false
		for i, granted := range driver.Granted(q.views()) {
			r := &q.Tickets[i]
			if !granted && waits {
				continue
			}
			waits = waits || !granted
			o, ok := seen[r.ID]
			if !ok || o.Observed.Heartbeat == "" {
				continue
			}
			if s := *e.heartbeats[r.Process]; s.version != (Version{}) {
				s.keep = max(min(patience(r.life())+keepSeen, d.keep()), s.keep, all[r.Process].keep)
				all[r.Process] = s
			}
		}
	}
	return all
}

// vouch writes that the first lease of a ticket of this process was there: jobs with a minimum hold come once in a period,
// and the next one need not begin to observe if this one dies.
func (e *Engine) vouch(ctx context.Context, t *ticket) error {
	clock, ok := e.store.(Clock)
	if !ok {
		return nil
	}
	now, err := e.time(ctx, clock)
	if err != nil {
		return err
	}
	c := &change{queues: true}
	c.apply = func(d *document, _ bool) (changed bool, err error) {
		q := d.find(t.name)
		i := q.index(t.id)
		if i < 0 || q.Tickets[i].Lease != 1 {
			return false, nil
		}
		q.Tickets[i].Observed = &observation{Clock: now.Clock, At: now.Latest}
		return true, nil
	}
	return e.change(ctx, t.file.key, c)
}

// time reads the store's clock.
func (e *Engine) time(ctx context.Context, clock Clock) (Time, error) {
	now, err := clock.Time(ctx)
	e.answered(err)
	if err == nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.clock = now.Clock
	}
	return now, err
}
