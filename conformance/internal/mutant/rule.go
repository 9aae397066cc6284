package mutant

import (
	"maps"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
)

// grant grants whom the rule lets through.
func (ln *line) grant(now time.Time) {
	s := ln.s
	if s.has(LateHandOff) && !ln.pollAt.IsZero() && now.Before(ln.pollAt) {
		return
	}
	ln.pollAt = time.Time{}
	if ln.free.After(now) || ln.stuck {
		return
	}
	order := slices.Clone(ln.tickets)
	if s.has(LastInFirstOut) {
		slices.Reverse(order)
	}
	for _, t := range order {
		if t.held || !ln.grantable(t) {
			continue
		}
		ln.hold(t, now)
		if s.has(OneReaderAtATime) {
			ln.stuck = true
			return
		}
	}
	if s.has(LateHandOff) && slices.ContainsFunc(ln.tickets, func(t *ticket) bool { return !t.held }) {
		ln.pollAt = now.Add(5 * time.Second)
	}
}

// hold grants a ticket. Until its client says that it knows, the lease is as
// long as a waiter's silence may be.
func (ln *line) hold(t *ticket, now time.Time) {
	t.held, t.since = true, now
	if ln.s.has(LapsedRevivesIf) {
		maps.DeleteFunc(ln.s.lapsed, func(_ string, l *ticket) bool { return l.r.Name == t.r.Name })
	}
	t.until = now.Add(min(t.r.TTL, Liveness))
	if ln.s.has(LeaseFromJoining) {
		t.until = now.Add(max(t.joined.Add(t.r.TTL).Sub(now), t.r.TTL/4))
	}
	if ln.s.has(TokensAtGrant) {
		ln.s.last++
		t.token = ln.s.last
	}
	close(t.done)
}

// grantable is the rule, and the ways to get it wrong.
func (ln *line) grantable(t *ticket) bool {
	s := ln.s
	at := slices.Index(ln.tickets, t)
	ahead := ln.tickets[:at]
	switch {
	case s.has(Permissive):
		return true
	case s.has(TwoHolders) && !t.r.Shared && s.xs%9 == 0:
		return true
	case s.has(LastInFirstOut):
		ahead = others(ln.tickets, t, func(o *ticket) bool { return o.held })
	case s.has(SharedIgnoresX) && t.r.Shared:
		ahead = others(ahead, t, func(o *ticket) bool { return o.r.Shared })
	case s.has(ReaderPasses) && t.r.Shared:
		ahead = others(ahead, t, func(o *ticket) bool { return o.r.Shared || o.held })
	case s.has(PermitPasses) && t.r.Limit > 0:
		ahead = others(ln.tickets, t, func(o *ticket) bool { return o.held })
	case s.has(TryJumps) && !t.r.Wait:
		ahead = others(ahead, t, func(o *ticket) bool { return o.held })
	case s.has(TryAfterRelease) && !t.r.Wait:
		ahead = others(ahead, t, func(o *ticket) bool { return o.held || !ln.free.After(time.Now()) })
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
