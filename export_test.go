package locker

import "time"

// Kept counts what the Client keeps, for tests of leaks.
func (c *Client) Kept() (leases, owners, removals, scheduled int) {
	c.leases.mu.Lock()
	leases, owners, scheduled = len(c.leases.byID), len(c.leases.byOwner), len(c.leases.schedule)
	c.leases.mu.Unlock()
	c.removals.mu.Lock()
	defer c.removals.mu.Unlock()
	return leases, owners, len(c.removals.tickets) + len(c.removals.retries) + c.removals.trying, scheduled
}

// Hooks counts the functions that run when k ends.
func (k *Lock) Hooks() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.hooks)
}

// Watches reports whether the goroutine that renews leases runs.
func (c *Client) Watches() bool {
	c.leases.mu.Lock()
	defer c.leases.mu.Unlock()
	return c.leases.running
}

// WithSuspension replaces the function that measures how long the machine was
// suspended.
func WithSuspension(f func() time.Duration) ClientOption {
	return func(c *Client) { c.core.clock = newClock(f) }
}

// Undelivered is how many leases are queued for the delivery of their events.
func (c *Client) Undelivered() int {
	c.background.mu.Lock()
	defer c.background.mu.Unlock()
	return len(c.background.queue)
}

// Repeat is repeat.
var Repeat = repeat
