package consul

import (
	"slices"
	"sort"
)

// A view is what a driver knows of a line: its live tickets up to a Raft index,
// and perhaps some that have gone meanwhile.
//
// A ticket's number is the Raft index of its creation, which is given once; a
// key comes again, with a larger number. So after an index nothing can appear ahead of
// a number below it, and a ticket that has gone stays gone: a ticket that the view says is granted is
// granted, however old the view is. An old view can only be too cautious.
type view struct {
	spots    []spot // by number; a part of them has gone
	head     int    // all before it have gone
	live     int
	complete uint64 // every live ticket with a number up to this is in spots
}

// A spot is a place in a view.
type spot struct {
	number uint64
	modify uint64
	key    string
	shared bool
	limit  int
	gone   bool
}

func spotOf(e entry) spot {
	return spot{number: e.CreateIndex, modify: e.ModifyIndex, key: e.Key, shared: e.Shared, limit: e.Limit}
}

// replace takes over a line that was read at the given index or later. Unless
// exact says that it was read after all that the view knows had happened, an
// older line is left aside.
func (v *view) replace(line []entry, index uint64, exact bool) {
	if index < v.complete && !exact {
		return
	}
	later := v.spots[v.find(index+1):] // joined after the read
	spots := make([]spot, 0, len(line)+len(later))
	for _, e := range line {
		spots = append(spots, spotOf(e))
	}
	for _, s := range later {
		if !s.gone && (len(spots) == 0 || s.number > spots[len(spots)-1].number) {
			spots = append(spots, s)
		}
	}
	v.spots, v.head, v.live = spots, 0, len(spots)
	v.complete = max(v.complete, index)
}

// add takes in one ticket.
func (v *view) add(s spot) {
	i := v.find(s.number)
	if i < len(v.spots) && v.spots[i].number == s.number {
		return
	}
	v.spots = slices.Insert(v.spots, i, s)
	v.head = min(v.head, i)
	v.live++
}

// remove takes out a ticket that has gone from the store.
func (v *view) remove(number uint64) {
	i := v.find(number)
	if i == len(v.spots) || v.spots[i].number != number || v.spots[i].gone {
		return
	}
	v.spots[i].gone = true
	v.spots[i].key = ""
	v.live--
	for v.head < len(v.spots) && v.spots[v.head].gone {
		v.head++
	}
	if v.head > 64 && v.head > len(v.spots)/2 {
		v.spots = slices.Clone(v.spots[v.head:])
		v.head = 0
	}
}

// prune takes out the tickets that had gone at the given index or later, at which
// the keys below the line's prefix were read. Of tickets that were created after
// it that says nothing.
func (v *view) prune(keys []string, index uint64) {
	there := make(map[string]struct{}, len(keys))
	for _, key := range keys {
		there[key] = struct{}{}
	}
	var gone []uint64
	for _, s := range v.spots[v.head:] {
		if _, ok := there[s.key]; !ok && !s.gone && s.number <= index {
			gone = append(gone, s.number)
		}
	}
	for _, number := range gone {
		v.remove(number)
	}
}

// find returns where a number stands, or would.
func (v *view) find(number uint64) int {
	return sort.Search(len(v.spots), func(i int) bool { return v.spots[i].number >= number })
}

// has tells whether a ticket is in the view.
func (v *view) has(number uint64) bool {
	i := v.find(number)
	return i < len(v.spots) && v.spots[i].number == number && !v.spots[i].gone
}

// granted calls yield for every ticket that is granted (driver.Grantable). It
// looks no further than the first widest tickets, where 0 means all: widest is
// the largest limit that the caller asks for.
func (v *view) granted(widest int, yield func(number uint64)) {
	ahead := 0
	for _, s := range v.spots[v.head:] {
		if s.gone {
			continue
		}
		if s.number > v.complete || widest > 0 && ahead >= widest {
			return
		}
		if !s.shared {
			if ahead == 0 {
				yield(s.number)
			}
			return // everything behind an exclusive ticket is blocked
		}
		if s.limit == 0 || ahead < s.limit {
			yield(s.number)
		}
		ahead++
	}
}

// A target is what to watch until a blocked ticket may be granted.
type target struct {
	spot
	whole bool // no single ticket decides: watch the whole line
}

// blocker returns what holds up the ticket with the given number, the first of
// those that the caller waits for.
//
// Where several tickets ahead must all go, any of them may be watched. The
// last but one is the best choice: when it has gone, the line is read again
// while the last still holds the lock, and when the last has gone nothing needs
// to be read.
func (v *view) blocker(number uint64) target {
	var all, exclusive [2]*spot // the last two
	var self *spot
	for i := v.head; i < len(v.spots); i++ {
		s := &v.spots[i]
		if s.gone {
			continue
		}
		if s.number >= number {
			self = s
			break
		}
		all[0], all[1] = all[1], s
		if !s.shared {
			exclusive[0], exclusive[1] = exclusive[1], s
		}
	}
	last := exclusive
	switch {
	case exclusive[1] != nil:
	case self == nil || self.shared && self.limit != 1:
		return target{whole: true}
	default:
		last = all
	}
	for _, s := range last {
		if s != nil {
			return target{spot: *s}
		}
	}
	return target{whole: true}
}
