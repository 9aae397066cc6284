package redlock

import (
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// guessLead is by how much guessed numbers lead the nodes' clocks, so that requests
// that take a little longer than usual are not refused.
const guessLead = 1000 // µs

// numbers guesses the numbers of tickets: the time in microseconds as the nodes
// have it, larger than any that was seen. A guess that is too small costs
// a second round.
type numbers struct {
	mu      sync.Mutex
	base    time.Time
	offsets []int64 // per node: its clock less the time since base, when a request arrives
	last    uint64
}

// unknown is the offset of a node that has not answered yet.
const unknown = math.MinInt64

func newNumbers(nodes int) *numbers {
	return &numbers{base: time.Now(), offsets: slices.Repeat([]int64{unknown}, nodes)}
}

// guess returns a number for a new ticket.
func (g *numbers) guess() uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	offset := slices.Max(g.offsets)
	if offset == unknown {
		offset = g.base.UnixMicro()
	}
	n := uint64(max(0, time.Since(g.base).Microseconds()+offset+guessLead)) //nolint:gosec // not negative
	g.last = max(n, g.last+1)
	return g.last
}

// above returns a number above all floors that a majority has answered. The
// random part keeps concurrent callers from taking the same number again and
// again.
func (g *numbers) above(floor uint64) uint64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	n := floor + 1 + rand.Uint64N(16) //nolint:gosec // no secret
	g.last = max(g.last, n)
	return n
}

// learn notes a node's clock, from the answer to a request sent at a given
// time.
func (g *numbers) learn(node int, sent time.Time, now int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	offset, before := now-sent.Sub(g.base).Microseconds(), g.offsets[node]
	if before != unknown && offset > before { // one slow answer does not make numbers run far ahead
		offset = before + (offset-before)/8
	}
	g.offsets[node] = offset
}
