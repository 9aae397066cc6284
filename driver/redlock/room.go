package redlock

import (
	"errors"
	"math/bits"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver/internal/redisline"
)

// room is where this process's waiters for one name wait. They share the
// heartbeats, which also look whether the line has moved without a notice.
// Driver.mu guards it.
type room struct {
	name, key string
	waiters   map[string]*waiter
	away      map[*waiter]struct{} // those that some nodes do not know
	alarm     redisline.Alarm      // for the next heartbeat
	last      time.Time            // of the last one
	all       bool                 // the next one asks after all tickets
	every     time.Duration
	poll      time.Duration // for a foreign holder's release
	under     []bool        // nodes that have not answered the last one yet
	moves     []time.Time   // when the line may move by itself, on each node, and is to be looked at; zero: never
	foreign   []bool        // nodes on which another client holds
	errs      []error       // of the last heartbeat, of each node
	seen      []time.Time   // when the last heartbeat was sent that a node has answered
	lapsed    bool          // tickets may have left the line: too few nodes were seen for too long
}

func newRoom(name, key string, nodes int) *room {
	return &room{
		name: name, key: key, waiters: make(map[string]*waiter), away: make(map[*waiter]struct{}), every: redisline.Heartbeat, last: time.Now(),
		under: make([]bool, nodes), moves: make([]time.Time, nodes), foreign: make([]bool, nodes), errs: make([]error, nodes),
		seen: slices.Repeat([]time.Time{time.Now()}, nodes),
	}
}

// look takes in what a node has said of the line.
func (rm *room) look(node int, o redisline.Outlook) {
	rm.errs[node] = nil
	rm.foreign[node] = o.Look && o.Foreign
	rm.moves[node] = time.Time{}
	if o.Look && o.After >= 0 {
		rm.moves[node] = time.Now().Add(o.After + time.Millisecond)
	}
}

// Intervals at which nodes are asked that have not answered, and at which any is
// asked at the most.
const (
	retry   = 200 * time.Millisecond
	soonest = time.Millisecond
)

// plan sets the next heartbeat after what the nodes have said. With mu held.
func (d *Driver) plan(rm *room) {
	next := rm.last.Add(rm.every)
	earlier := func(t time.Time) {
		if t.Before(next) {
			next = t
		}
	}
	var moves []time.Time
	foreign := 0
	for i := range d.nodes {
		if rm.errs[i] != nil {
			earlier(rm.last.Add(retry))
		}
		if !rm.moves[i].IsZero() {
			moves = append(moves, rm.moves[i])
		}
		if rm.foreign[i] {
			foreign++
		}
	}
	// The lease of a holder may end on each node a little later than on another:
	// it is worth looking when it has on enough nodes to matter.
	slices.SortFunc(moves, time.Time.Compare)
	if enough := d.quorum - (len(d.nodes) - len(moves)); len(moves) > 0 {
		earlier(moves[min(max(0, enough-1), len(moves)-1)])
	}
	if foreign > 0 {
		earlier(rm.last.Add(max(rm.poll, redisline.PollFirst)))
	}
	d.beatAt(rm, next)
}

// beatAt sets the next heartbeat, unless an earlier one is set; with mu held.
func (d *Driver) beatAt(rm *room, t time.Time) {
	if d.closed || len(rm.waiters) == 0 {
		return
	}
	if least := rm.last.Add(soonest); t.Before(least) {
		t = least
	}
	rm.alarm.Set(t, func() { d.beat(rm) })
}

var errNoPulse = errors.New("no answer since the last heartbeat")

// beat shows the nodes that this process lives and wants its tickets, and
// takes in how the line stands. It asks after some of the tickets only, and waits for
// nobody: a node that has not answered the last one is left out.
func (d *Driver) beat(rm *room) {
	d.mu.Lock()
	if d.closed || len(rm.waiters) == 0 {
		d.mu.Unlock()
		return
	}
	begun := time.Now()
	rm.alarm.Rung()
	rm.last = begun
	asked := redisline.Sample(rm.waiters, rm.all)
	rm.all = false
	if slices.Contains(rm.foreign, true) {
		rm.poll = min(max(2*rm.poll, redisline.PollFirst), redisline.PollMost)
	} else {
		rm.poll = 0
	}
	var nodes []*node
	for i, n := range d.nodes {
		rm.moves[i], rm.foreign[i] = time.Time{}, false
		if !rm.under[i] {
			rm.under[i] = true
			nodes = append(nodes, n)
		} else if rm.errs[i] == nil {
			rm.errs[i] = errNoPulse
		}
	}
	d.plan(rm)
	back := d.back(rm)
	d.mu.Unlock()
	for w, absent := range back {
		for _, n := range nodes {
			if absent&(1<<n.index) != 0 {
				d.rejoin(n, w)
			}
		}
	}
	for _, n := range nodes {
		c := d.beatCall(rm, asked)
		c.done = func(v any, err error) { d.pulse(rm, n, begun, asked, v, err) }
		n.add(c)
	}
}

// back returns which tickets are to be put in line again, and where: those that
// the last heartbeat has missed on a few nodes. With mu held.
func (d *Driver) back(rm *room) map[*waiter]uint64 {
	if len(rm.away) == 0 {
		return nil
	}
	back := make(map[*waiter]uint64)
	for w := range rm.away {
		if !w.asking && bits.OnesCount64(w.absent) <= len(d.nodes)-d.quorum {
			back[w] = w.absent
		}
	}
	clear(rm.away)
	return back
}

// What a heartbeat is told of a ticket.
const (
	isGone = iota
	isWaiting
	isHeld
	isReady
)

// pulse takes in a node's answer to a heartbeat.
func (d *Driver) pulse(rm *room, n *node, begun time.Time, asked []*waiter, v any, err error) {
	var reply []int64
	if err == nil {
		reply, err = redisline.Ints("beat", v, 2+len(asked))
	}
	d.mu.Lock()
	rm.under[n.index] = false
	if err != nil {
		rm.errs[n.index] = err
		d.plan(rm)
		d.mu.Unlock()
		return
	}
	lapsed := d.sight(rm, n.index, begun)
	rm.look(n.index, redisline.ParseOutlook(reply[0], reply[1]))
	d.plan(rm)
	d.mu.Unlock()
	for i, w := range asked {
		d.hearOf(n, w, reply[2+i], lapsed)
	}
}

// sight notes that a node has answered a heartbeat, and tells whether tickets
// may have left the line before: then they do not come back to their places.
// With mu held.
func (d *Driver) sight(rm *room, node int, begun time.Time) (lapsed bool) {
	now := time.Now()
	fresh := func() int {
		n := 0
		for _, seen := range rm.seen {
			if now.Sub(seen) < redisline.Liveness {
				n++
			}
		}
		return n
	}
	if fresh() < d.quorum && !rm.lapsed {
		rm.lapsed, rm.all = true, true
	}
	lapsed = rm.lapsed
	rm.seen[node] = begun
	if fresh() >= d.quorum {
		rm.lapsed = false
	}
	return lapsed
}

// hearOf takes in how a ticket stands on a node.
func (d *Driver) hearOf(n *node, w *waiter, state int64, lapsed bool) {
	d.mu.Lock()
	current := d.waiters[w.t.r.ID] == w && !w.asking
	round := w.t.round.Load()
	if current && state == isGone {
		w.absent |= 1 << n.index
		if lapsed {
			w.absent = 1<<len(d.nodes) - 1
		}
		w.room.away[w] = struct{}{}
		w.stir()
	}
	d.mu.Unlock()
	switch {
	case !current:
	case state == isReady:
		d.ready(w, n.index, true)
	case state == isHeld:
		// A request came there after what was to undo it.
		d.yieldOn(n, w, round)
	}
}
