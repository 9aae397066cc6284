package main

import (
	"fmt"
	"sync"
	"time"
)

// shop is the resource that has to be protected: a stock that is read, and
// written some time later, as over any database without transactions. It is
// fenced: once it has seen a token it refuses smaller ones, so that a holder
// who is late, because the lock was lost while it did not look, changes
// nothing.
type shop struct {
	items int

	mu    sync.Mutex
	stock int
	sold  int
	token uint64 // the greatest fencing token seen
}

func newShop(items int) *shop { return &shop{items: items, stock: items} }

// sellOne sells one item if there is one: read, think, write. A token of 0 is
// that of a caller who has no lock.
func (s *shop) sellOne(token uint64) (more bool, err error) {
	left, err := s.read(token)
	if err != nil || left == 0 {
		return err != nil, err
	}
	time.Sleep(time.Millisecond) // charge the card
	if err := s.write(token, left-1); err != nil {
		return true, err
	}
	return left > 1, nil
}

func (s *shop) read(token uint64) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stock, s.fence(token)
}

func (s *shop) write(token uint64, left int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.fence(token); err != nil {
		return err
	}
	s.stock = left
	s.sold++
	return nil
}

// fence lets nobody in who comes after a greater token. With mu held.
func (s *shop) fence(token uint64) error {
	if token < s.token {
		return fmt.Errorf("not sold: token %d comes after %d", token, s.token)
	}
	s.token = token
	return nil
}

// oversold is how many more were sold than there were.
func (s *shop) oversold() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return max(0, s.sold-s.items)
}

func (s *shop) report(how string, workers int, took time.Duration) {
	fmt.Printf("%s: %d items, %d workers: sold %d, oversold %d (%v)\n",
		how, s.items, workers, s.sold, s.oversold(), took.Round(time.Millisecond))
}
