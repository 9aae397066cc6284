package redlock

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
)

// outcome is what the answers of the nodes to a proposal mean.
type outcome int

const (
	undecided   outcome = iota
	granted             // the ticket holds on a majority
	inQueue             // it is queued on a majority
	tooSmall            // its number was refused by too many
	notNow              // others are ahead of it, on a majority
	split               // several have asked at once, and nothing is settled
	unreachable         // too few have answered
	familiar            // the ticket was asked for before, and has another number
	gone                // it was released before
)

// A proposal asks all nodes for a ticket under a number.
type proposal struct {
	*round[answer]
	t       *ticket
	number  uint64
	attempt int64 // of the ticket
	mode    byte
	asked   time.Time
	again   bool   // of a ticket that is queued already
	news    uint64 // nodes that have said since that the ticket may hold there
	hurried bool   // the last nodes have a limit
	outcome outcome
	mending bool // granted: nodes that answer from now on and lack it are repaired
}

func (d *Driver) newProposal(t *ticket, number uint64, mode byte) *proposal {
	p := &proposal{round: newRound(d, parseAcquire), t: t, number: number, mode: mode}
	p.sending = func(send func()) bool { // before the release of the ticket, or not at all
		d.mu.Lock()
		defer d.mu.Unlock()
		if t.released {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.outcome = gone
			return false
		}
		send()
		return true
	}
	p.enough = func() bool {
		p.outcome = p.judge(p.pending)
		p.hasten()
		return p.outcome != undecided
	}
	p.each = func(node int, a answer, err error) {
		if err == nil {
			d.numbers.learn(node, p.asked, a.now)
		}
		if p.mending {
			p.mendOn(node)
		}
	}
	return p
}

// hasten gives the last nodes as long as the majority took, and a little more, if the ticket
// is to be proposed again without them: they may be silent until their timeout. Nobody asks again at
// once, for numbers that grow refuse those under way, and contenders starve each other.
// With mu held.
func (p *proposal) hasten() {
	if p.outcome != undecided || p.hurried || p.answered() < p.d.quorum || !p.vain() {
		return
	}
	p.hurried = true
	time.AfterFunc(time.Since(p.asked)+10*time.Millisecond, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.hurried = false; !p.over && p.vain() {
			p.outcome, p.over = p.judge(0), true
			close(p.done)
		}
	})
}

// vain reports whether another proposal is better than to wait for the last nodes: its number is too small, they do not make
// a majority that holds, or the ticket was queued by a node on which it may hold by now. With mu held.
func (p *proposal) vain() bool {
	switch p.judge(0) {
	case tooSmall:
		return !p.again
	case split:
		return p.counted(holds)+p.pending < p.d.quorum
	case inQueue:
		for i, a := range p.answers {
			if p.news&(1<<i) != 0 && p.errs[i] == nil && a.what == queued {
				return true
			}
		}
	}
	return false
}

// hasNews notes that a node has said that the ticket may hold there.
func (p *proposal) hasNews(node int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.news |= 1 << node
	if !p.over {
		p.hasten()
	}
}

// propose asks all nodes for a ticket.
func (d *Driver) propose(ctx context.Context, t *ticket, number uint64, mode, origin byte) (*proposal, error) {
	p := d.newProposal(t, number, mode)
	p.attempt = t.attempts.Add(1)
	p.again = number == t.number // no larger number follows, and the last node may make the majority
	p.asked = time.Now()
	d.attempts(t, p)
	defer d.attempts(t, nil)
	err := p.ask(ctx, func(*node) *redisqueue.Call { return d.acquireCall(t, t.r.TTL, number, p.attempt, mode, origin) })
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.outcome == undecided {
		p.outcome = p.judge(0)
	}
	if err != nil && p.outcome != granted {
		return p, err
	}
	return p, nil
}

// ask proposes a ticket, under larger numbers until one is taken.
func (d *Driver) ask(ctx context.Context, t *ticket, number uint64, mode, origin byte) (*proposal, error) {
	for {
		p, err := d.propose(ctx, t, number, mode, origin)
		if err != nil || p.outcome != tooSmall && p.outcome != familiar {
			return p, err
		}
		number, origin = p.next()
	}
}

func (p *proposal) counted(what int64) int {
	return p.count(func(a answer) bool { return a.what == what })
}

// judge returns the outcome of the answers so far. open is how many answers are still to
// come, which may change it.
func (p *proposal) judge(open int) outcome {
	quorum := p.d.quorum
	yes, in, blocks, small, knows := p.counted(holds), p.counted(queued), p.counted(blocked), p.counted(refused), p.counted(known)
	answered := yes + in + blocks + small + knows
	switch {
	case p.counted(released) > 0:
		return gone
	case knows > 0 && open == 0:
		return familiar
	case knows > 0:
		return undecided
	case yes >= quorum && p.fits():
		return granted
	case yes+open >= quorum && open > 0:
		return undecided
	// It does not hold on a majority.
	case answered < quorum && open > 0:
		return undecided
	case answered < quorum:
		return unreachable
	case p.mode == orLeave && (yes >= quorum || blocks > p.d.minority()) && p.settled():
		return notNow
	case p.mode == orWait && yes+in >= quorum:
		return inQueue
	case open > 0:
		return undecided
	case small > 0:
		return tooSmall
	case p.mode == orLeave:
		return split
	}
	return unreachable
}

// countAhead counts the tickets that at least so many nodes report as ahead. Only answers for which is holds count.
func (p *proposal) countAhead(least int, is func(answer) bool) (n int) {
	seen := make(map[string]int)
	for i, a := range p.answers {
		if p.errs[i] != nil || !is(a) {
			continue
		}
		for _, id := range a.ahead {
			if seen[id]++; seen[id] == least {
				n++
			}
		}
	}
	return n
}

func (p *proposal) limited() bool { return p.t.r.Shared && p.t.r.Limit > 1 }

// settled reports whether the tickets that block this one are on a majority. Tickets that
// are being requested at this moment may be on some nodes, and not stay there. That is not
// known of another library's lock.
func (p *proposal) settled() bool {
	return p.count(func(a answer) bool { return a.what == blocked && len(a.ahead) == 0 }) > 0 ||
		p.countAhead(p.d.quorum, func(a answer) bool { return a.alone }) > 0 ||
		p.countAhead(p.d.quorum, func(a answer) bool { return !a.alone }) >= max(1, p.t.r.Limit)
}

// fits reports whether few enough tickets are ahead of a ticket with a limit. Each node
// may know only some of them, but of the nodes that have answered, all but a minority
// know a ticket that is on a majority.
func (p *proposal) fits() bool {
	return !p.limited() || p.countAhead(max(1, p.counted(holds)-p.d.minority()), func(a answer) bool { return a.what == holds }) < p.t.r.Limit
}

// next returns the number to propose after one that was not taken.
func (p *proposal) next() (number uint64, origin byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	floor := p.number
	votes := make(map[uint64]int)
	for i, a := range p.answers {
		if p.errs[i] != nil {
			continue
		}
		floor = max(floor, a.floor)
		if a.what == known {
			p.t.attempts.Store(max(p.t.attempts.Load(), a.round)) // the wall clock may have been set back since
			if votes[a.floor]++; votes[a.floor] >= p.d.quorum {
				return a.floor, kept
			}
		}
	}
	return p.d.numbers.above(floor), numberAbove
}

// given returns the nodes on which the ticket holds, and those on which it may:
// they have not answered.
func (p *proposal) given() (sure, perhaps uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, a := range p.answers {
		switch {
		case p.errs[i] != nil:
			perhaps |= 1 << i
		case a.what == holds:
			sure |= 1 << i
		}
	}
	return sure, perhaps
}

// outlooks returns what the nodes that have queued the ticket have answered about the queue.
func (p *proposal) outlooks() []redisqueue.Outlook {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]redisqueue.Outlook, len(p.answers))
	for i, a := range p.answers {
		all[i] = a.outlook
	}
	return all
}

// mend makes all nodes hold a ticket that is granted: those that answer, now or later,
// that they lack it, or fail to answer, and those that have said before the grant that it may hold.
func (p *proposal) mend(may uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mending = true
	for i, a := range p.answers {
		if may&(1<<i) != 0 && !(p.errs[i] == nil && a.what == holds) {
			p.d.repair(p.d.nodes[i], p.t)
		} else {
			p.mendOn(i)
		}
	}
}

// mendOn mends a node that lacks the ticket, or may lack it: the request may have been lost. With mu held.
func (p *proposal) mendOn(node int) {
	n := p.d.nodes[node]
	switch err := p.errs[node]; {
	case err == nil && p.answers[node].lacks():
		p.d.repair(n, p.t)
	case err == nil && p.answers[node].what == queued: // it notifies of a release, but not of the end of a lease
		n.owe("repair "+p.t.r.ID, func() { p.d.repair(n, p.t) })
	case err != nil && !errors.Is(err, errSilent) && !denied(err):
		p.d.askAgain(n)
	}
}

// failure is the error of a proposal that was not decided, or came after the release.
func (p *proposal) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.outcome == gone:
		return p.d.lost(p.t)
	case p.d.life.Closed():
		return driver.ErrClosed
	}
	err := p.round.failure()
	if p.nowhere() {
		return driver.NoTicket(err)
	}
	return err
}

// nowhere reports whether no node can have the ticket: each was sent no request for it,
// or has refused the only one. With mu held.
func (p *proposal) nowhere() bool {
	if p.attempt > p.t.begun+1 {
		return false
	}
	for i, n := range p.d.nodes {
		err := p.errs[i]
		if err == nil || errors.Is(err, errSilent) || p.calls[i].Sent() > 0 && !redisqueue.Refused(err) || n.unanswered.Requests(p.t.r.ID) > 0 {
			return false
		}
	}
	return true
}

// foreign reports whether another library's lock that is not a string is in the way.
func (p *proposal) foreign() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.answers, func(a answer) bool { return a.foreign })
}

// silent reports whether too few nodes have answered, and one of the others may have
// taken the request.
func (p *proposal) silent() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.outcome != unreachable {
		return false
	}
	var timeout interface{ Timeout() bool }
	for i, err := range p.errs {
		if errors.Is(err, errSilent) || errors.As(err, &timeout) && timeout.Timeout() && p.calls[i].Sent() > 0 {
			return true
		}
	}
	return false
}
