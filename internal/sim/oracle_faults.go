package sim

import (
	"errors"
	"slices"
	"time"

	"github.com/lockerproject/locker"
)

// What a fault does not excuse.

// tooEarly reports whether a lock was lost before the lease could be over that its grant, or
// its last renewal, has given it: whatever has happened to the network since, nobody may
// have removed it. With mu held.
func (o *oracle) tooEarly(h *hold, e locker.Event, then time.Time) bool {
	asked := o.renewed[e.ID]
	if errors.Is(e.Err, locker.ErrLost) && !h.asked.IsZero() { // the store says so
		asked = latest(asked, h.asked.Add(-h.ttl/5)) // a session may be somewhat older than its ticket
	}
	if asked.IsZero() || h.ttl < shortTTL || h.p.plan.observer != "" { // they hear late of what happens
		return false
	}
	if early := asked.Add(o.w.given(h.ttl) * 95 / 100).Sub(then); early > 0 {
		o.w.fail("%v was lost too early: %v before the end of the lease that was asked for at %v: %v", h, early, asked.Sub(o.w.begun), e.Err)
		return true
	}
	return false
}

// renewTime is how long a store has to be reachable before the end of a lease of that
// length, so that the lease has to be renewed: for what was sent before to be given up, and
// for several tries.
func renewTime(ttl time.Duration) time.Duration { return max(ttl/3, 5*time.Second) }

// renewTime is that of a holder's lease. The core gives up a renewal when a third of what is left has passed, and the
// bank adds nothing to that.
func (o *oracle) renewTime(ttl time.Duration) time.Duration {
	if len(o.w.servers) == 1 {
		if _, ok := o.w.servers[0].model.(*bank); ok {
			return max(ttl/3, time.Second) + o.w.slow
		}
	}
	return renewTime(ttl)
}

// couldRenew reports whether there was time to renew a lease after it was due, without any
// fault, before it was over. With mu held.
func (o *oracle) couldRenew(h *hold, then time.Time) bool {
	ttl := o.w.given(h.ttl)
	from := latest(h.at, then.Add(-ttl*6/10))
	if h.fixed || ttl < shortTTL {
		return false
	}
	if free := o.w.free(h.p.name, from, then); free > o.renewTime(ttl) {
		o.w.fail("%v was lost, and could have been renewed: the store was reachable for %v since %v", h, free, from.Sub(o.w.begun))
		return true
	}
	return false
}

// free returns the longest time without a fault in that time.
func (w *world) free(process string, from, to time.Time) (longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	concerns := func(f interval) bool {
		return f.process == "" || f.process == process
	}
	// The longest begins at the start, or at the end of a fault.
	begins := []time.Time{from}
	for _, f := range w.faults {
		if concerns(f) {
			begins = append(begins, w.passed(f))
		}
	}
	for _, begin := range begins {
		if begin.Before(from) || begin.After(to) {
			continue
		}
		end := to
		for _, f := range w.faults {
			if concerns(f) && w.passed(f).After(begin) && f.from.Before(end) {
				end = latest(begin, f.from)
			}
		}
		longest = max(longest, end.Sub(begin))
	}
	return longest
}

// passed is when a fault is over for other messages than its own: each to the bank has its own connection.
func (w *world) passed(f interval) time.Time {
	if w.exact && slices.Contains(single, f.kind) {
		return f.from
	}
	return f.to
}

// couldKeep reports whether a waiter must have its place, whatever faults there were: since its ticket
// could not be dead to others yet, or since it had all the time that it needs to keep it. With mu held.
func (o *oracle) couldKeep(c *call, p *part) bool {
	now := time.Now()
	age := func(life time.Duration) time.Duration { // of the ticket: if its answer may have been late, from when it was asked for
		if since := latest(c.begun, p.queued.Add(-life)); o.w.faulty(c.p.name, since, p.queued) > 0 {
			return now.Sub(since)
		}
		return now.Sub(p.queued)
	}
	switch {
	case p.queued.IsZero() || c.p.isDead() || c.p.plan.observer != "" || c.s.ttl < 2*shortTTL || o.w.lostSince(c.begun):
		return false
	case o.w.sessions > 0: // the session is kept alive after a third of its TTL, and not old when a ticket is put on it
		life := max(c.s.ttl, o.w.sessions)
		young := age(life) < life*3/4
		if o.w.most > 0 { // it may be as old as its process, and is kept alive by its client
			life = o.w.sessions
			young = now.Sub(c.begun) < o.w.most*9/10 && o.w.faulty(c.p.name, c.begun, p.queued) == 0
		}
		return young || o.w.free(c.p.name, latest(p.queued, now.Add(-life*6/10)), now) > renewTime(life)
	case o.w.liveness > 0: // there are three or four heartbeats in that time, and a failed one is sent again soon
		life := o.w.liveness
		most := life / 5
		if !o.w.relistens && o.w.onlyDown(c.p.name, now.Add(-2*life), now) { // connections are refused at once, and a heartbeat that has failed is sent again soon
			most = life * 13 / 20 // mostOutage of four seconds
		}
		young := age(life) < life*3/4 && o.w.relistens // on Redis a request for a ticket is a heartbeat
		return young || o.w.faulty(c.p.name, now.Add(-2*life), now) < most
	case o.w.watched: // of a few seconds, a heartbeat has to come
		life, late, most := min(c.s.ttl, 4*time.Second), time.Duration(0), 1500*time.Millisecond
		if len(o.w.servers) > 1 { // a message to the bank that is lost costs more than a heartbeat, and a loss there is known late
			late, most = bankQuiet, time.Nanosecond
		}
		return age(life) < life*3/4 || life == 4*time.Second && o.w.faulty(c.p.name, now.Add(-2*life-late), now) < most
	}
	return false
}

// onlyDown reports whether the servers were down in that time, and nothing else was wrong.
func (w *world) onlyDown(process string, from, to time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.faults {
		if (f.process == "" || f.process == process) && f.kind != "down" && !f.from.After(to) && !f.to.Before(from) {
			return false
		}
	}
	return true
}

// onlySlow reports whether nothing has been wrong so far but that messages were slow.
func (w *world) onlySlow() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !slices.ContainsFunc(w.faults, func(f interval) bool { return f.kind != "slow" })
}

// faulty returns for how long there was a fault in that time.
func (w *world) faulty(process string, from, to time.Time) (all time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.faults {
		if f.process != "" && f.process != process || f.from.After(to) || f.to.Before(from) {
			continue
		}
		end := f.to
		if end.After(to) {
			end = to
		}
		all += end.Sub(latest(f.from, from))
	}
	return all
}

// silence is how long a store may leave a waiter without any sign of life before it counts
// as away: a ping each second, which is waited for as long; and something beyond.
const silence = 5 * time.Second

// started is when a process was there for the first time: a fault before has had no effect.
func (w *world) started(process string) (first time.Time) {
	for _, s := range w.servers {
		s.mu.Lock()
		for _, p := range s.paths {
			if p.process == process && (first.IsZero() || p.made.Before(first)) {
				first = p.made
			}
		}
		s.mu.Unlock()
	}
	return first
}

// wasSilent reports whether no message of the caller has got through for so long that its
// limit must be told as an outage.
func (o *oracle) wasSilent(c *call) bool {
	if o.w.hasSecond {
		return o.primarySilent(c)
	}
	if len(o.w.servers) != 1 || c.s.verb != "acquire" || c.p.plan.observer != "" {
		return false
	}
	started := o.w.started(c.p.name)
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	for _, f := range o.w.faults {
		concerns := f.process == c.p.name && (f.kind == "cut" || f.kind == "suspend") && !f.from.Before(started) || f.process == "" && f.kind == "pause"
		if from := latest(c.begun, f.from); concerns && c.ended.Sub(from) > silence && !f.to.Before(c.ended) {
			return true
		}
	}
	return false
}
