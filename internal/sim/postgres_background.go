package sim

import (
	"encoding/hex"
	"maps"
	"slices"
)

// The functions that renew leases and maintain queues, as background.sql says.

// renew is {renew}, of one lease.
func (c *pgCall) renew(name string, slot, token int64, id string, ttl int64) bool {
	t := c.find(name, func(t *pgTicket) bool { return t.slot == slot && t.token == token && t.id == id })
	if t == nil || !t.held || t.expires <= c.now {
		return false
	}
	t.provisional, t.expires = false, max(t.expires, c.now+ttl)
	return true
}

// shorten is {shorten}.
func (c *pgCall) shorten(name string, token int64, id string, left int64) bool {
	t := c.find(name, func(t *pgTicket) bool { return t.token == token && t.id == id })
	if t == nil || !t.held || t.expires <= c.now {
		return false
	}
	t.expires = min(t.expires, c.now+left)
	if first := c.find(name, waits); first != nil {
		c.notify(first.process, "d "+hex.EncodeToString([]byte(name)))
	}
	return true
}

// heartbeat is {heartbeat}.
func (c *pgCall) heartbeat(process, life int64, create bool) int64 {
	p := c.processes[process]
	switch {
	case p != nil && p.alive > c.now:
		p.heartbeat, p.alive = p.heartbeat+1, c.now+life
	case p == nil && create:
		p = &pgProcess{1, c.now + life}
		c.processes[process] = p
	default:
		return 0
	}
	return p.heartbeat
}

// sweep is {sweep}.
func (c *pgCall) sweep(after string, most int64) (last any, busy int64) {
	maps.DeleteFunc(c.processes, func(_ int64, p *pgProcess) bool { return p.alive < c.now-1e6 })
	expired := func(t *pgTicket) bool {
		if t.held {
			return t.expires < c.now-1e6
		}
		return c.processes[t.process] == nil
	}
	seen := int64(0)
	for _, name := range slices.Sorted(maps.Keys(c.tickets)) {
		if seen == most || name <= after || c.find(name, expired) == nil {
			continue
		}
		seen++
		last = []byte(name)
		for _, t := range slices.Clone(c.tickets[name]) {
			if !t.held && expired(t) {
				c.delete(t)
			}
		}
		c.walk(name, 0, 0, false)
		if c.find(name, expired) != nil {
			busy++
		}
	}
	if seen < most {
		last = nil
	}
	return last, busy
}

// sweeper is {sweeper}.
func (c *pgCall) sweeper(life int64, done bool) int64 {
	p := c.processes[0]
	taken := p != nil && p.alive > c.now && p.alive < c.now+60e6
	if taken && !done {
		return max(1, c.micros(p.alive))
	}
	c.processes[0] = &pgProcess{0, c.now + life}
	return 0
}
