package locker

// Books counts what the core keeps, for tests that look for leaks.
func (c *Client) Books() (leases, owned, attempts, scheduled int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.leases), len(c.owned), len(c.attempts), len(c.schedule.leases)
}

// Hooks counts what runs when k ends.
func (k *Lock) Hooks() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.hooks)
}

// Looks tells whether the goroutine of the schedule runs.
func (c *Client) Looks() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.schedule.running
}
