package main

import (
	"fmt"
	"sync"
	"time"
)

// bank keeps the accounts.
type bank struct {
	mu       sync.Mutex
	balances map[string]int
	made     int // transfers
}

func newBank() *bank {
	b := &bank{balances: map[string]int{"shop": 1000}}
	for i := range customers {
		b.balances[customer(i)] = 1000
	}
	return b
}

func (b *bank) transfer(from, to string, amount int) {
	left, right := b.read(from), b.read(to)
	time.Sleep(time.Millisecond) // what a round trip takes
	b.write(from, left-amount)
	b.write(to, right+amount)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.made++
}

func (b *bank) read(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.balances[name]
}

func (b *bank) write(name string, amount int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.balances[name] = amount
}

// total is what is on all accounts.
func (b *bank) total() (sum int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, amount := range b.balances {
		sum += amount
	}
	return sum
}

func (b *bank) String() string {
	return fmt.Sprintf("%d made, then the accounts hold %d", b.made, b.total())
}
