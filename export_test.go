package locker

import "time"

// Books counts what the core keeps, for tests that look for leaks.
func (c *Client) Books() (leases, owned, removals, scheduled int) {
	c.leases.mu.Lock()
	leases, scheduled = len(c.leases.held), len(c.leases.schedule)
	c.leases.mu.Unlock()
	c.owners.mu.Lock()
	owned = len(c.owners.entries)
	c.owners.mu.Unlock()
	c.removals.mu.Lock()
	defer c.removals.mu.Unlock()
	return leases, owned, len(c.removals.tickets) + c.removals.trying, scheduled
}

// Hooks counts what runs when k ends.
func (k *Lock) Hooks() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.hooks)
}

// Watches tells whether the goroutine of the schedule runs.
func (c *Client) Watches() bool {
	c.leases.mu.Lock()
	defer c.leases.mu.Unlock()
	return c.leases.running
}

// WithSuspension replaces what tells how long the machine was suspended.
func WithSuspension(f func() time.Duration) ClientOption {
	return func(c *Client) { c.core.clock = newClock(f) }
}
