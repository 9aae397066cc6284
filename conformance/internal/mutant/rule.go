package mutant

import (
	"maps"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
)

// grant grants the tickets that the rule allows.
func (q *queue) grant(now time.Time) {
	s := q.s
	if s.has(LateHandOff) && !q.pollAt.IsZero() && now.Before(q.pollAt) {
		return
	}
	q.pollAt = time.Time{}
	if q.free.After(now) || q.stuck {
		return
	}
	order := slices.Clone(q.tickets)
	if s.has(LastInFirstOut) {
		slices.Reverse(order)
	}
	for _, t := range order {
		if t.held {
			continue
		}
		if !q.grantable(t) {
			if s.has(FirstWaiterOnly) {
				return
			}
			continue
		}
		q.hold(t, now)
		if s.has(OneReaderAtATime) {
			q.stuck = true
			return
		}
	}
	if s.has(LateHandOff) && slices.ContainsFunc(q.tickets, func(t *ticket) bool { return !t.held }) {
		q.pollAt = now.Add(5 * time.Second)
	}
}

// hold grants a ticket. Until its client acknowledges the grant, the lease is at
// most Liveness.
func (q *queue) hold(t *ticket, now time.Time) {
	t.held, t.since = true, now
	if q.s.has(GrantedNotes) && now.After(t.queued) {
		t.r.Note = ""
	}
	if q.s.has(LapsedRevivesIf) {
		maps.DeleteFunc(q.s.lapsed, func(_ string, l *ticket) bool { return l.r.Name == t.r.Name })
	}
	t.until = now.Add(min(t.r.TTL, Liveness))
	if q.s.has(LeaseFromQueueing) {
		t.until = now.Add(max(t.queued.Add(t.r.TTL).Sub(now), t.r.TTL/4))
	}
	if q.s.has(TokensAtGrant) {
		q.s.last++
		t.token = q.s.last
	}
	close(t.done)
}

// grantable is the rule, and the ways to get it wrong.
func (q *queue) grantable(t *ticket) bool {
	s := q.s
	at := slices.Index(q.tickets, t)
	ahead := q.tickets[:at]
	switch {
	case s.has(Permissive):
		return true
	case s.has(TwoHolders) && !t.r.Shared && s.exclusives%9 == 0:
		return true
	case s.has(LastInFirstOut):
		ahead = others(q.tickets, t, func(o *ticket) bool { return o.held })
	case s.has(SharedIgnoresX) && t.r.Shared:
		ahead = others(ahead, t, func(o *ticket) bool { return o.r.Shared })
	case s.has(ReaderPasses) && t.r.Shared:
		ahead = others(ahead, t, func(o *ticket) bool { return o.r.Shared || o.held })
	case s.has(PermitPasses) && t.r.Limit > 0:
		ahead = others(q.tickets, t, func(o *ticket) bool { return o.held })
	case s.has(TryJumps) && !t.r.Wait:
		ahead = others(ahead, t, func(o *ticket) bool { return o.held })
	case s.has(TryAfterRelease) && !t.r.Wait:
		ahead = others(ahead, t, func(o *ticket) bool { return o.held || !q.free.After(time.Now()) })
	case s.has(SameProcess):
		ahead = others(ahead, t, func(o *ticket) bool { return !o.held || o.d != t.d })
	}
	view := make([]driver.Ticket, 0, len(ahead)+1)
	for _, o := range append(slices.Clip(ahead), t) {
		v := o.r.Ticket(o.token)
		if s.has(LimitOffByOne) && v.Limit > 0 {
			v.Limit++
		}
		if s.has(ReadersExclude) && v.Limit == 0 {
			v.Shared = false
		}
		view = append(view, v)
	}
	return driver.Grantable(view, len(view)-1)
}

func others(ts []*ticket, t *ticket, keep func(*ticket) bool) []*ticket {
	return slices.DeleteFunc(slices.Clone(ts), func(o *ticket) bool { return o == t || !keep(o) })
}
