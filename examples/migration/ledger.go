package main

import (
	"fmt"
	"sync"
	"time"
)

// ledger is what the lock protects. It checks tokens.
type ledger struct {
	mu      sync.Mutex
	inside  int
	most    int // who were inside at the same time
	beside  int // writes that began while another was going on
	last    uint64
	steps   []tally
	falling int // tokens that are not greater than those before them in their step
}

// tally is what the programs of a step did.
type tally struct {
	writes          int // refused ones too
	least, greatest uint64
	refused         int // for a token that is not greater than the last one
}

func newLedger(steps int) *ledger { return &ledger{steps: make([]tally, steps)} }

func (b *ledger) write(step int, token uint64) {
	b.enter(step, token)
	time.Sleep(time.Millisecond) // what a round trip takes
	b.mu.Lock()
	defer b.mu.Unlock()
	b.inside--
}

func (b *ledger) enter(step int, token uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.inside > 0 {
		b.beside++
	}
	b.inside++
	b.most = max(b.most, b.inside)

	s := &b.steps[step]
	if token <= s.greatest {
		b.falling++
	}
	if s.writes == 0 {
		s.least = token
	}
	s.writes++
	s.least, s.greatest = min(s.least, token), max(s.greatest, token)
	if token <= b.last {
		s.refused++
		return
	}
	b.last = token
}

// writes counts those of all steps.
func (b *ledger) writes() (n int) {
	for _, s := range b.steps {
		n += s.writes
	}
	return n
}

func (b *ledger) String() string {
	return fmt.Sprintf("%d writes, %d of them while another was going on, at most %d at the same time",
		b.writes(), b.beside, b.most)
}
