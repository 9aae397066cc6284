package sim

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"
	"go.etcd.io/etcd/api/v3/mvccpb"
)

// Until when the models have a ticket, by its ID, and that none comes back (contract.go).

func (d *database) lease(name, id string, _ time.Time) (there bool, until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &pgCall{pgTables: &d.tables, now: d.time()}
	for _, t := range d.tables.tickets[name] {
		if t.id == id {
			there = c.live(t)
			if t.held {
				until = d.trueTime(t.expires)
			}
		}
	}
	return there, until
}

// trueTime is when the database's clock has that time, in µs.
func (d *database) trueTime(micros int64) time.Time { return trueTime(d.s.w, micros, d.ahead, d.rate) }

// trueTime is when a clock has that time, in µs, which was so far ahead in the beginning, and runs at that rate.
func trueTime(w *world, micros int64, ahead time.Duration, rate float64) time.Time {
	since := time.UnixMicro(micros).Sub(w.begun.Add(ahead))
	return w.begun.Add(time.Duration(float64(since) / rate))
}

func (n *node) lease(name, id string, since time.Time) (there bool, until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.leaseOf(name, id, since)
}

// leaseOf is lease on those nodes alone that have lost nothing since then. With mu held.
func (n *node) leaseOf(name, id string, since time.Time) (there bool, until time.Time) {
	nodes := n.group
	if nodes == nil {
		nodes = []*node{n}
	}
	count, ends := 0, []time.Time(nil)
	for _, one := range nodes {
		if one.lostAt.After(since) {
			continue
		}
		here, end := one.here(name, id)
		if here {
			count++
		}
		if !end.IsZero() {
			ends = append(ends, end)
		}
	}
	quorum := len(nodes)/2 + 1
	if len(ends) >= quorum {
		for range quorum - 1 { // the majority that has it for the longest time
			ends = without(ends, last(ends))
		}
		until = last(ends)
	}
	return count >= quorum, until
}

func last(times []time.Time) (t time.Time) {
	for _, other := range times {
		t = latest(t, other)
	}
	return t
}

func without(times []time.Time, t time.Time) (rest []time.Time) {
	for i, other := range times {
		if other.Equal(t) {
			return append(append(rest, times[:i]...), times[i+1:]...)
		}
	}
	return times
}

// here returns what one server has of a ticket. With mu held.
func (n *node) here(name, id string) (there bool, until time.Time) {
	key := "locker:{" + name + "}"
	live := func(side string) *redisValue {
		if v := n.data[key+side]; v != nil && (v.until == 0 || n.time()/1000 <= v.until) {
			return v
		}
		return nil
	}
	main := live("")
	if main == nil || main.text == nil {
		main = &redisValue{text: new(string)}
	}
	if f := strings.Fields(strings.Replace(*main.text, "?", " ", 1)); len(f) > 2 && f[1] == id {
		return true, trueTime(n.s.w, main.until*1000, n.ahead, n.rate)
	}
	for _, side := range []string{"", "r"} {
		for _, set := range []string{"x", "s"} {
			if v := live(":" + side + set); v != nil {
				if _, ok := v.zset[id]; ok {
					there = true
				}
			}
		}
		if h, e := live(":"+side+"h"), live(":"+side+"e"); h != nil && e != nil && strings.HasSuffix(*main.text, " *") {
			if _, ok := h.zset[id]; ok && n.time() <= int64(e.zset[id]) {
				return true, trueTime(n.s.w, int64(e.zset[id]), n.ahead, n.rate)
			}
		}
	}
	return there, time.Time{}
}

// keptUntil returns until when a ticket that waits is sure to stay in the queue, and to be granted next if the one before it is
// released: until its process is taken for dead, and while the present lease lasts.
func (n *node) keptUntil(name, id string) time.Time {
	n.mu.Lock()
	defer n.mu.Unlock()
	key := "locker:{" + name + "}"
	lives, main := n.data[key+":p"], n.data[key]
	if lives == nil || main == nil {
		return n.s.w.begun
	}
	_, rest, _ := strings.Cut(n.data[key+":t"].hash[id], " ")
	channel, _, _ := strings.Cut(rest, " ")
	return trueTime(n.s.w, min(int64(lives.zset[channel]), main.until*1000), n.ahead, n.rate)
}

// idOf is the ID of the ticket of which the value of a key tells, in etcd and Consul; "": of none.
func idOf(value []byte) string {
	var ticket struct {
		ID string `json:"id"`
	}
	_ = json.Unmarshal(value, &ticket)
	return ticket.ID
}

// ticketOf returns the key of a ticket. With mu held.
func (c *cluster) ticketOf(name, id string) *mvccpb.KeyValue {
	for key, kv := range c.data.keys {
		if isTicketOf(key, name) && idOf(kv.Value) == id {
			return kv
		}
	}
	return nil
}

func (c *cluster) lease(name, id string, _ time.Time) (there bool, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	kv := c.ticketOf(name, id)
	if kv == nil {
		return false, time.Time{}
	}
	if l := c.leases[kv.Lease]; l != nil {
		until = l.from.Add(l.ttl)
	}
	return true, until
}

// ticketOf returns the pair of a ticket. With mu held.
func (a *agent) ticketOf(name, id string) *api.KVPair {
	for key, p := range a.pairs {
		if p.Session != "" && strings.HasPrefix(key, "locker/~queue/"+name+"/") && idOf(p.Value) == id {
			return p
		}
	}
	return nil
}

func (a *agent) lease(name, id string, _ time.Time) (there bool, until time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	p := a.ticketOf(name, id)
	if p == nil {
		return false, time.Time{}
	}
	if s := a.sessions[p.Session]; s != nil {
		until = s.from.Add(s.ttl)
	}
	return true, until
}

// ids returns the IDs of the tickets in a document of package casqueue, of a name or, with "", of all.
func ids(document []byte, name string) (all []string) {
	var doc observed
	if !bytes.HasPrefix(document, []byte("{")) || json.Unmarshal(document, &doc) != nil {
		return nil
	}
	for _, q := range doc.Queues {
		for _, t := range q.Tickets {
			if name == "" || q.Name == name {
				all = append(all, t.ID)
			}
		}
	}
	return all
}

// leaseIn is lease for a store of documents, which do not tell when a lease is over: others watch that.
func leaseIn(name, id string, documents func(yield func([]byte) bool)) (there bool, until time.Time) {
	for doc := range documents {
		if slices.Contains(ids(doc, name), id) {
			return true, time.Now().Add(1000 * time.Hour)
		}
	}
	return false, time.Time{}
}

func (c *cache) lease(name, id string, _ time.Time) (there bool, until time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return leaseIn(name, id, func(yield func([]byte) bool) {
		for key, i := range c.items {
			if strings.Contains(key, ":q:") && i.until.After(time.Now()) && !yield(i.value) {
				return
			}
		}
	})
}

func (t *table) lease(name, id string, _ time.Time) (there bool, until time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return leaseIn(name, id, func(yield func([]byte) bool) {
		for key, i := range t.items {
			if strings.Contains(key, ":q:") && !i.expired(time.Now()) && !yield(i.document()) {
				return
			}
		}
	})
}

func (c *cache) signsOf() *signs { return c.signs }
func (t *table) signsOf() *signs { return t.signs }

// always says of a store that writes documents that a ticket in one is there.
func always(string, string, time.Time) bool { return true }

func (b *bank) lease(name, id string, _ time.Time) (there bool, until time.Time) {
	tickets, _ := b.memory.Inspect(context.Background(), name)
	for _, t := range tickets {
		if t.ID == id {
			there = true
			if t.Held {
				until = time.Now().Add(t.Remaining)
			}
		}
	}
	return there, until
}
