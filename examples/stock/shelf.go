package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/lockerproject/locker/stripe"
)

// shelf keeps the pieces, in segments.
type shelf struct {
	mu     sync.Mutex
	left   []int // in each segment
	sold   int
	inside int // sales that are being made
	most   int // at the same time
}

func newShelf(segments int) *shelf {
	s := &shelf{left: make([]int, segments)}
	for i := range s.left {
		s.left[i] = pieces / segments
	}
	return s
}

func (s *shelf) sell(segment int) error {
	left := s.begin(segment)
	time.Sleep(time.Millisecond) // what a round trip takes
	return s.end(segment, left)
}

func (s *shelf) begin(segment int) (left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inside++
	s.most = max(s.most, s.inside)
	return s.left[segment]
}

func (s *shelf) end(segment, left int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.inside--
	if left == 0 {
		return stripe.ErrEmpty
	}
	s.left[segment] = left - 1
	s.sold++
	return nil
}

func (s *shelf) String() string {
	return fmt.Sprintf("sold %d, oversold by %d, at most %d at the same time", s.sold, max(0, s.sold-pieces), s.most)
}
