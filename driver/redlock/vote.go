package redlock

import (
	"context"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisline"
)

// verdict is what the answers of the nodes to a request for a ticket mean.
type verdict int

const (
	undecided   verdict = iota
	granted             // it holds on a majority
	inQueue             // it stands in line on a majority
	tooSmall            // its number was refused by too many
	notNow              // others are ahead of it, on a majority
	split               // several have asked at once, and nothing is settled
	unreachable         // too few have answered
	familiar            // it was asked for before, and has another number
	gone                // it was released before
)

// vote is one request for a ticket to all nodes.
type vote struct {
	*poll
	d       *Driver
	t       *ticket
	number  uint64
	round   int64
	mode    byte
	asked   time.Time
	verdict verdict

	answers []answer
	heard   []bool
	errs    []error
	n       [5]int // answers by what they say
	lost    bool
	late    bool // granted: nodes that answer now and do not hold are to be repaired
}

// vote asks all nodes for a ticket.
func (d *Driver) vote(ctx context.Context, t *ticket, number uint64, mode, origin byte) (*vote, error) {
	v := &vote{
		d: d, t: t, number: number, round: t.round.Add(1), mode: mode,
		answers: make([]answer, len(d.nodes)), heard: make([]bool, len(d.nodes)), errs: make([]error, len(d.nodes)),
	}
	v.poll = newPoll(v.take)
	v.asked = time.Now()
	err := d.ask(ctx, v.poll, func(n *node) *call { return d.acquireCall(t, t.r.TTL, number, v.round, mode, origin) })
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.verdict == undecided {
		v.verdict = v.judge(true)
	}
	if err != nil && v.verdict != granted {
		return v, err
	}
	return v, nil
}

// take counts one answer.
func (v *vote) take(node int, reply any, err error) bool {
	var a answer
	if err == nil {
		a, err = parseAcquire(reply)
	}
	if err != nil {
		v.errs[node] = err
	} else {
		v.answers[node], v.heard[node] = a, true
		v.d.numbers.learn(node, v.asked, a.now)
		if a.what == released {
			v.lost = true
		} else {
			v.n[a.what]++
		}
	}
	if v.over {
		if v.late && err == nil && a.what == refused {
			v.d.repair(v.d.nodes[node], v.t)
		}
		return true
	}
	v.verdict = v.judge(v.pending == 0)
	return v.verdict != undecided
}

// judge counts what was answered. Unless it is final, what is still to come may
// change it.
func (v *vote) judge(final bool) verdict {
	nodes, quorum, open := len(v.d.nodes), v.d.quorum, v.pending
	if final {
		open = 0
	}
	yes, in := v.n[holds], v.n[inLine]
	answered := yes + in + v.n[refused] + v.n[blocked] + v.n[known]
	switch {
	case v.lost:
		return gone
	case v.n[known] > 0 && open == 0:
		return familiar
	case v.n[known] > 0:
		return undecided
	case yes >= quorum && v.fits():
		return granted
	case yes+open >= quorum && open > 0:
		return undecided
	// It does not hold on a majority.
	case answered < quorum && open > 0:
		return undecided
	case answered < quorum:
		return unreachable
	case v.mode == orLeave && (yes >= quorum || v.n[blocked] > nodes-quorum) && v.settled():
		return notNow
	case v.mode == orWait && yes+in >= quorum:
		return inQueue
	case open > 0:
		return undecided
	case v.n[refused] > 0:
		return tooSmall
	case v.mode == orLeave:
		return split
	}
	return unreachable
}

// settled tells whether what is in the way of a ticket with a limit stands on a
// majority. Tickets that are only asked for at this moment may be on some nodes, and
// not stay there.
func (v *vote) settled() bool {
	if !v.t.r.Shared || v.t.r.Limit < 2 {
		return true
	}
	seen, ahead := make(map[string]int), 0
	for i, a := range v.answers {
		if v.heard[i] && a.what == blocked && len(a.ahead) == 0 {
			return true // an exclusive ticket, or another library's lock
		}
		for _, id := range a.ahead {
			if seen[id]++; seen[id] == v.d.quorum {
				ahead++
			}
		}
	}
	return ahead >= v.t.r.Limit
}

// fits tells whether a ticket with a limit has few enough ahead of it. Each node
// may know of others only: one that stands on a majority is known to all but a
// minority of those that have answered.
func (v *vote) fits() bool {
	limit := v.t.r.Limit
	if !v.t.r.Shared || limit < 2 {
		return true
	}
	least := max(1, v.n[holds]+v.d.quorum-len(v.d.nodes))
	seen := make(map[string]int)
	ahead := 0
	for i, a := range v.answers {
		if !v.heard[i] || a.what != holds {
			continue
		}
		for _, id := range a.ahead {
			if seen[id]++; seen[id] == least {
				ahead++
			}
		}
	}
	return ahead < limit
}

// next returns the number to ask with after one that was not taken.
func (v *vote) next() (number uint64, origin byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	floor := v.number
	votes := make(map[uint64]int)
	for i, a := range v.answers {
		if !v.heard[i] {
			continue
		}
		floor = max(floor, a.floor)
		if a.what == known {
			votes[a.floor]++
		}
	}
	for n, times := range votes {
		if times >= v.d.quorum {
			return n, kept
		}
	}
	return v.d.numbers.above(floor), above
}

// given returns the nodes on which the ticket holds, and those on which it may:
// they have not answered.
func (v *vote) given() (sure, perhaps uint64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, a := range v.answers {
		switch {
		case !v.heard[i]:
			perhaps |= 1 << i
		case a.what == holds:
			sure |= 1 << i
		}
	}
	return sure, perhaps
}

// repairLate makes nodes that have refused, or will yet, hold as well.
func (v *vote) repairLate() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.late = true
	for i, a := range v.answers {
		if v.heard[i] && a.what == refused {
			v.d.repair(v.d.nodes[i], v.t)
		}
	}
}

func (v *vote) failure() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.d.isClosed() {
		return driver.ErrClosed
	}
	err := v.d.unreached(v.errs, func(i int) bool { return v.heard[i] })
	if v.nowhere() {
		return driver.NoTicket(err)
	}
	return err
}

// nowhere tells whether no node can have the ticket: none was sent a request for
// it, or each has refused the only one. With mu held.
func (v *vote) nowhere() bool {
	if v.round > 1 {
		return false
	}
	for i, n := range v.d.nodes {
		if err := v.errs[i]; err == nil || !unsent(err) && !redisline.Refused(err) || n.strayed(v.t.r.ID) {
			return false
		}
	}
	return true
}

// foreign tells whether another library's lock that is not a string is in the way.
func (v *vote) foreign() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.ContainsFunc(v.answers, func(a answer) bool { return a.foreign })
}

// silent tells whether a node may have taken the request, and has not answered.
func (v *vote) silent() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i, err := range v.errs {
		if !v.heard[i] && (err == nil || isTimeout(err)) {
			return true
		}
	}
	return false
}
