package redisqueue

import (
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Times of waiting tickets.
const (
	Liveness  = 3 * time.Second // after which a process without a heartbeat is dead
	Heartbeat = Liveness / 3    // the interval, for each name that a process waits for

	retryAfter = 200 * time.Millisecond // until a node that has failed is asked again
	pollFirst  = 5 * time.Millisecond   // while another library holds, for the process of the first waiter
	pollMost   = 200 * time.Millisecond
	pollAlways = 50 * time.Millisecond // while no notification can come
	sampleSize = 16                    // tickets that a heartbeat asks for
)

// errNoAnswer is the error of a node that has not answered a heartbeat for as long as the interval.
var errNoAnswer = driver.Unavailable(errors.New("no answer to the last heartbeat"))

// Heartbeats sends each node a heartbeat, once a second for each name that this process
// waits for. It says that this process lives and wants its tickets, and asks for the state
// of some of them. A heartbeat is also sent when a queue may have moved without a
// notification: when the lease of a holder that may be dead ends, every 5 to 200 ms
// while another library holds, and every 50 ms while no notification can come.
//
// A single server is one node, and its own majority.
type Heartbeats struct {
	Nodes, Quorum int
	// Ask sends a node a heartbeat for tickets of a name, in the form that the scripts
	// take, and calls answer once.
	Ask func(node int, name string, tickets []string, answer func(v any, err error))
	// State is called with a ticket's state, as a node has answered it. lapsed: tickets may
	// have left the queue before, because too few nodes have had a heartbeat from this
	// process for too long.
	State func(node int, ticket string, state int64, lapsed bool)
	// Unnotified, if set, reports whether no notification can come: then heartbeats poll.
	Unnotified func() bool

	mu     sync.Mutex
	closed bool
	names  map[string]*waiting
}

// The states of a ticket in the answer to a heartbeat.
const (
	IsGone = iota
	IsWaiting
	IsHeld
	MayHold
)

// waiting is what this process waits for under one name. Heartbeats.mu guards it.
type waiting struct {
	name    string
	tickets map[string]time.Time // since when their heartbeats are sent
	timer   *time.Timer          // sends the next heartbeat
	due     time.Time            // when the timer fires; zero: it is not set
	last    time.Time            // when the last heartbeat was sent
	poll    time.Duration        // the interval while another library holds
	lapsed  bool                 // tickets may have left the queue
	nodes   []nodeState
}

// nodeState is what one node has answered about a queue.
type nodeState struct {
	asked   time.Time // when the heartbeat that is under way was sent; zero: none is
	forAll  bool      // it asks after all tickets
	all     bool      // the next one does
	err     error     // of the last heartbeat that has ended
	seen    time.Time // when the last heartbeat that was answered was sent
	moves   time.Time // when the queue may move by itself; zero: never
	foreign bool      // another library holds
}

// Enter begins the heartbeats of a ticket that was queued by a request sent at asked. outlooks
// are what the nodes have answered then, in their order. A majority has, so no earlier error counts.
func (h *Heartbeats) Enter(name, ticket string, asked time.Time, outlooks ...Outlook) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.names[name]
	if w == nil {
		if h.names == nil {
			h.names = make(map[string]*waiting)
		}
		w = &waiting{name: name, tickets: make(map[string]time.Time), last: asked, nodes: make([]nodeState, h.Nodes)}
		for i := range w.nodes {
			w.nodes[i].seen = asked
		}
		h.names[name] = w
	}
	w.tickets[ticket] = time.Now()
	for i := range w.nodes {
		w.nodes[i].err = nil
	}
	for i, o := range outlooks {
		if o.Poll {
			w.nodes[i].take(o)
		}
	}
	h.plan(w)
}

// Leave ends the heartbeats of a ticket.
func (h *Heartbeats) Leave(name, ticket string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := h.names[name]
	if w == nil {
		return
	}
	delete(w.tickets, ticket)
	if len(w.tickets) == 0 {
		delete(h.names, name)
		w.stop()
	}
}

// Poll sends a heartbeat for a name now.
func (h *Heartbeats) Poll(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.names[name]; w != nil {
		h.at(w, time.Now())
	}
}

// AskAll makes the next heartbeat of a name ask for all of its tickets.
func (h *Heartbeats) AskAll(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.names[name]; w != nil {
		w.askAll()
	}
}

// Recheck asks for all tickets now, because notifications may have been missed.
func (h *Heartbeats) Recheck() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.names {
		w.askAll()
		h.at(w, time.Now())
	}
}

// Errs returns, for each node, the error of the last heartbeat for a name. A heartbeat may be due early, so a node that has not
// answered yet has failed only after the usual interval.
func (h *Heartbeats) Errs(name string) []error {
	h.mu.Lock()
	defer h.mu.Unlock()
	errs := make([]error, h.Nodes)
	if w := h.names[name]; w != nil {
		for i, p := range w.nodes {
			if errs[i] = p.err; p.err == nil && !p.asked.IsZero() && time.Since(p.asked) >= Heartbeat {
				errs[i] = errNoAnswer
			}
		}
	}
	return errs
}

// Silent returns the nodes that take this process for dead, as bits: they have not answered a heartbeat
// for a name for so long.
func (h *Heartbeats) Silent(name string) (nodes uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if w := h.names[name]; w != nil {
		for i := range w.nodes {
			if time.Since(w.nodes[i].seen) >= Liveness {
				nodes |= 1 << i
			}
		}
	}
	return nodes
}

// Close ends all heartbeats but those that are under way.
func (h *Heartbeats) Close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	for _, w := range h.names {
		w.stop()
	}
}

func (w *waiting) askAll() {
	for i := range w.nodes {
		w.nodes[i].all = true
	}
}

func (w *waiting) stop() {
	if w.timer != nil {
		w.timer.Stop()
	}
}

func (p *nodeState) take(o Outlook) {
	p.err = nil
	p.foreign = o.Poll && o.Foreign
	p.moves = time.Time{}
	if o.Poll && o.After >= 0 {
		p.moves = time.Now().Add(o.After + time.Millisecond)
	}
}

// plan schedules the next heartbeat by what the nodes have answered. With mu held.
func (h *Heartbeats) plan(w *waiting) {
	h.at(w, w.last.Add(Heartbeat))
	if h.Unnotified != nil && h.Unnotified() && w.nodes[0].asked.IsZero() { // else the answer plans again
		w.askAll()
		h.at(w, w.last.Add(pollAlways))
	}
	var moves []time.Time
	for i := range w.nodes {
		p := &w.nodes[i]
		if p.err != nil {
			h.at(w, w.last.Add(retryAfter))
		}
		if p.foreign {
			h.at(w, w.last.Add(max(w.poll, pollFirst)))
		}
		if !p.moves.IsZero() {
			moves = append(moves, p.moves)
		}
	}
	if len(moves) == 0 {
		return
	}
	// A holder's lease may end on one node a little later than on another. Send the next
	// heartbeat when it has ended on so many that a majority may be free.
	slices.SortFunc(moves, time.Time.Compare)
	enough := h.Quorum - (h.Nodes - len(moves))
	h.at(w, moves[min(max(0, enough-1), len(moves)-1)])
}

// at schedules a heartbeat, unless an earlier one is scheduled. With mu held.
func (h *Heartbeats) at(w *waiting, t time.Time) {
	if least := w.last.Add(time.Millisecond); t.Before(least) {
		t = least
	}
	switch {
	case h.closed || len(w.tickets) == 0 || !w.due.IsZero() && !t.Before(w.due):
		return
	case w.timer == nil:
		w.timer = time.AfterFunc(time.Until(t), func() { h.send(w) })
	default:
		w.timer.Reset(time.Until(t))
	}
	w.due = t
}

// send sends a heartbeat to the nodes, but not to a node that has not answered the last
// one. It does not wait for answers.
func (h *Heartbeats) send(w *waiting) {
	h.mu.Lock()
	if h.closed || len(w.tickets) == 0 {
		h.mu.Unlock()
		return
	}
	begun := time.Now()
	w.last, w.due = begun, time.Time{}
	foreign := false
	asked := make([][]string, len(w.nodes))
	for i := range w.nodes {
		p := &w.nodes[i]
		foreign = foreign || p.foreign
		p.moves, p.foreign = time.Time{}, false
		if p.asked.IsZero() {
			p.asked = begun
			asked[i] = w.sample(p.all)
			p.forAll, p.all = p.all, false
		}
	}
	w.poll = min(2*max(w.poll, pollFirst/2), pollMost)
	if !foreign {
		w.poll = 0
	}
	h.plan(w)
	h.mu.Unlock()
	for i, tickets := range asked {
		if tickets != nil {
			h.Ask(i, w.name, tickets, func(v any, err error) { h.answer(w, i, begun, tickets, v, err) })
		}
	}
}

// sample returns the tickets that a heartbeat asks for: all, or some at random.
func (w *waiting) sample(all bool) []string {
	size := min(sampleSize, len(w.tickets))
	if all {
		size = len(w.tickets)
	}
	asked := make([]string, 0, size)
	for t := range w.tickets {
		if len(asked) == size {
			break
		}
		asked = append(asked, t)
	}
	return asked
}

// answer takes in a node's answer to a heartbeat.
func (h *Heartbeats) answer(w *waiting, node int, begun time.Time, asked []string, v any, err error) {
	var reply []int64
	if err == nil {
		reply, err = Ints("heartbeat", v, 2+len(asked))
	}
	h.mu.Lock()
	p := &w.nodes[node]
	p.asked = time.Time{}
	lapsed := false
	current := make([]bool, len(asked)) // else the ticket has left, and perhaps was requested again
	for i, ticket := range asked {
		since, ok := w.tickets[ticket]
		current[i] = ok && !begun.Before(since)
	}
	if err != nil {
		p.err = err
		p.all = p.all || p.forAll
	} else {
		lapsed = h.noteAnswer(w, node, begun)
		p.take(ParseOutlook(reply[0], reply[1]))
	}
	h.plan(w)
	h.mu.Unlock()
	if err != nil {
		return
	}
	for i, ticket := range asked {
		if current[i] {
			h.State(node, ticket, reply[2+i], lapsed)
		}
	}
}

// noteAnswer notes that a node has answered a heartbeat, and reports whether tickets may have
// left the queue before. With mu held.
func (h *Heartbeats) noteAnswer(w *waiting, node int, begun time.Time) (lapsed bool) {
	now := time.Now()
	fresh := func() (n int) {
		for i := range w.nodes {
			if now.Sub(w.nodes[i].seen) < Liveness {
				n++
			}
		}
		return n
	}
	if fresh() < h.Quorum && !w.lapsed {
		w.lapsed = true
		w.askAll()
		h.at(w, now)
	}
	lapsed = w.lapsed
	w.nodes[node].seen = begun
	if fresh() >= h.Quorum {
		w.lapsed = false
	}
	return lapsed
}
