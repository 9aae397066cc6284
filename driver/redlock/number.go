package redlock

import (
	"math/rand/v2"
	"sync"
	"time"
)

// ahead is by how much guessed numbers lead the nodes' clocks, so that requests
// that take a little longer than usual are not refused.
const ahead = 1000 // µs

// numbers guesses the numbers of tickets: the time in microseconds as the nodes
// have it, larger than any that was seen. A guess that is too small costs
// a second round.
type numbers struct {
	mu      sync.Mutex
	base    time.Time
	offsets []int64 // per node: its clock less the time since base, when a request arrives
	known   []bool
	last    uint64
}

func newNumbers(nodes int) *numbers {
	return &numbers{base: time.Now(), offsets: make([]int64, nodes), known: make([]bool, nodes)}
}

// guess returns a number for a new ticket.
func (g *numbers) guess() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	offset, known := int64(0), false
	for i, ok := range g.known {
		if ok && (!known || g.offsets[i] > offset) {
			offset, known = g.offsets[i], true
		}
	}
	if !known {
		offset = g.base.UnixMicro()
	}
	n := uint64(max(0, time.Since(g.base).Microseconds()+offset+ahead)) //nolint:gosec // not negative
	g.last = max(n, g.last+1)
	return g.last
}

// above returns a number above all floors that a majority has answered. The
// random part keeps those who ask at once from taking the same again and again.
func (g *numbers) above(floor uint64) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := floor + 1 + rand.Uint64N(16) //nolint:gosec // no secret
	g.last = max(g.last, n)
	return n
}

// learn takes in a node's clock, as the answer to a request sent at a given
// time has told it.
func (g *numbers) learn(node int, sent time.Time, now int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	offset := now - sent.Sub(g.base).Microseconds()
	switch {
	case !g.known[node] || offset < g.offsets[node]:
		g.offsets[node], g.known[node] = offset, true
	default: // one slow answer does not make numbers run far ahead
		g.offsets[node] += (offset - g.offsets[node]) / 8
	}
}
