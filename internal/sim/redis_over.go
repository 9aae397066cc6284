package sim

import (
	"slices"
	"strconv"
	"strings"
)

// What is over stays over, on Redis and on the nodes of Redlock: a lease that has ended, and the tickets of a process of which
// the server has heard nothing for too long. Others may have seen that, so no message brings such a ticket back, unless it asks for it.

// kept is what a server has of the queue of one name.
type kept struct {
	n       *node
	key     string
	side    string // "r" on the nodes of Redlock
	records map[string]string
}

func (n *node) kept(key string) kept {
	q := kept{n: n, key: key}
	if n.group != nil {
		q.side = "r"
	}
	if t := q.value("t"); t != nil {
		q.records = t.hash
	}
	return q
}

// value returns one of the keys of a queue; nil: it is not there.
func (q *kept) value(what string) *redisValue {
	if v := q.n.data[q.key+":"+q.side+what]; v != nil && (v.until == 0 || q.n.time()/1000 <= v.until) {
		return v
	}
	return nil
}

// silent reports whether a server takes the process of a waiting ticket for dead.
func (q *kept) silent(id string, now int64) bool {
	f := strings.Fields(q.records[id])
	at := 1 // since channel …
	if q.side != "" {
		at = 2 // round since channel …
	}
	p := q.value("p")
	return len(f) <= at || p == nil || p.zset[f[at]] <= float64(now)
}

// over returns the tickets that are over and still there.
func (q *kept) over(now int64) (ids []string) {
	for _, set := range []string{"x", "s"} {
		if v := q.value(set); v != nil {
			for id := range v.zset {
				if q.silent(id, now) {
					ids = append(ids, id)
				}
			}
		}
	}
	if e := q.value("e"); e != nil {
		for id, until := range e.zset {
			if until <= float64(now) {
				ids = append(ids, id)
			}
		}
	}
	return ids
}

// lives reports whether a ticket waits for a process that lives, or holds.
func (q *kept) lives(name, id string, now int64) bool {
	for _, set := range []string{"x", "s"} {
		if v := q.value(set); v != nil {
			if _, ok := v.zset[id]; ok && !q.silent(id, now) {
				return true
			}
		}
	}
	_, until := q.n.here(name, id)
	return until.After(trueTime(q.n.s.w, now, q.n.ahead, q.n.rate))
}

// watchScript notes what is over before a script runs. The result checks what that has done. With mu held.
func (n *node) watchScript(now int64, keys, args []string) (check func(answer any)) {
	if len(keys) == 0 {
		return func(any) {}
	}
	key := keys[0]
	name, _, _ := strings.Cut(strings.TrimPrefix(key, "locker:{"), "}")
	q := n.kept(key)
	over := q.over(now)
	held := n.leasesOf(keys, args)
	return func(answer any) {
		q = n.kept(key)
		for _, id := range over {
			if !slices.Contains(args, id) && q.lives(name, id, now) {
				n.s.w.fail("%s: the ticket %s for %s was over, and is not any more", n.s.name, n.s.w.ticket(id), name)
			}
		}
		answers, _ := answer.([]any)
		for i, a := range answers {
			if i < len(held) && !held[i] && a == int64(1) {
				n.s.w.fail("%s has renewed a lease that is not there: %s", n.s.name, keys[i])
			}
		}
	}
}

// leasesOf returns which of the leases hold that a script renews, whose arguments are IDs and lengths; none: it renews none.
func (n *node) leasesOf(keys, args []string) (held []bool) {
	if len(args) != 2*len(keys) {
		return nil
	}
	for i, key := range keys {
		if _, err := strconv.ParseInt(args[2*i+1], 10, 64); err != nil {
			return nil
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(key, "locker:{"), "}")
		_, until := n.here(name, args[2*i])
		held = append(held, !until.IsZero())
	}
	return held
}
