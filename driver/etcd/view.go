package etcd

import (
	"slices"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/lockerproject/locker/driver"
)

// view is what is known of a line while somebody here waits in it: complete up
// to a revision, less the deletions that were learned of since.
//
// That is enough to grant. A ticket's number is its create revision, so nobody
// ever comes in ahead of a ticket that stands in line: once the view is complete
// up to the ticket's own revision, what is ahead of it can only get less. A
// view that lags delays a grant and never makes a false one.
type view struct {
	snap   int64            // all live tickets created up to here are in places
	latest int64            // the store's latest revision that is known of
	places []place          // in order of rev
	revs   map[string]int64 // key → rev of each place

	// An answer that is under way may show tickets whose deletion is learned of
	// before it arrives.
	requests int
	deleted  map[string]int64 // key → revision of its deletion, while requests > 0
}

type place struct {
	rev    int64
	key    string
	shared bool
}

func newView() *view {
	return &view{revs: make(map[string]int64), deleted: make(map[string]int64)}
}

// begin counts a request whose answer will be merged, end uncounts it.
func (v *view) begin() { v.requests++ }

func (v *view) end() {
	if v.requests--; v.requests == 0 {
		clear(v.deleted)
	}
}

// add puts a ticket in its place, unless it is known to have left since.
func (v *view) add(p place) {
	v.latest = max(v.latest, p.rev)
	if v.deleted[p.key] > p.rev {
		return
	}
	if old, ok := v.revs[p.key]; ok {
		if old >= p.rev {
			return
		}
		v.cut(old)
	}
	v.revs[p.key] = p.rev
	i := v.index(p.rev)
	v.places = slices.Insert(v.places, i, p)
}

// remove takes a key out that was deleted at a revision. A ticket that took
// the key's place after that stays.
func (v *view) remove(key string, at int64) {
	v.latest = max(v.latest, at)
	if v.requests > 0 {
		v.deleted[key] = max(at, v.deleted[key])
	}
	if rev, ok := v.revs[key]; ok && rev < at {
		delete(v.revs, key)
		v.cut(rev)
	}
}

func (v *view) index(rev int64) int {
	if n := len(v.places); n == 0 || v.places[n-1].rev < rev {
		return n // who joins comes last
	}
	i, _ := slices.BinarySearchFunc(v.places, rev, func(p place, rev int64) int {
		return int(min(max(p.rev-rev, -1), 1))
	})
	return i
}

func (v *view) cut(rev int64) {
	i := v.index(rev)
	if i == 0 { // who leaves was first: without moving the rest
		v.places[0] = place{}
		v.places = v.places[1:]
		return
	}
	v.places = slices.Delete(v.places, i, i+1)
}

// has reports whether a ticket stands in line, as far as is known.
func (v *view) has(key string, rev int64) bool { return v.revs[key] == rev }

// reset forgets all; the store's revision has gone back.
func (v *view) reset() {
	v.snap, v.latest, v.places = 0, 0, nil
	clear(v.revs)
}

// merge takes the whole line as it was at a revision.
func (v *view) merge(line string, at int64, classes ...[]*mvccpb.KeyValue) {
	if at < v.snap {
		return // all that is known already, and more
	}
	live := make(map[string]int64, len(v.revs))
	for _, kvs := range classes {
		for _, kv := range kvs {
			live[string(kv.Key)] = kv.CreateRevision
		}
	}
	v.places = slices.DeleteFunc(v.places, func(p place) bool {
		if p.rev > at || live[p.key] == p.rev {
			return false
		}
		delete(v.revs, p.key)
		return true
	})
	for _, kvs := range classes {
		for _, kv := range kvs {
			if key := string(kv.Key); isTicket(line, key) {
				v.add(place{rev: kv.CreateRevision, key: key, shared: isShared(line, key)})
			}
		}
	}
	v.snap, v.latest = at, max(v.latest, at)
}

// joined takes the line as it was just before a ticket joined it, and the ticket:
// at its revision nobody else has come.
func (v *view) joined(line string, p place, classes ...[]*mvccpb.KeyValue) {
	v.merge(line, p.rev-1, classes...)
	v.add(p)
	v.snap = max(v.snap, p.rev)
}

// front returns the tickets that may be granted: those up to and with the first
// exclusive one. What is behind it is blocked.
func (v *view) front() []place {
	for i, p := range v.places {
		if !p.shared {
			return v.places[:i+1]
		}
	}
	return v.places
}

// granted evaluates the front by the rule of the seam. Of tickets from
// elsewhere the limit is not known; their grants are not ours to tell.
func (v *view) granted(limitOf func(rev int64) int) []int64 {
	front := v.front()
	line := make([]driver.Ticket, len(front))
	for i, p := range front {
		line[i] = driver.Ticket{Shared: p.shared, Limit: limitOf(p.rev)}
	}
	var revs []int64
	for i, ok := range driver.Granted(line) {
		if ok {
			revs = append(revs, front[i].rev)
		}
	}
	return revs
}
