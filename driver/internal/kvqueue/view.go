package kvqueue

import (
	"cmp"
	"maps"
	"slices"
)

// view is what is known of a queue while a ticket of this driver waits in it: the newest
// snapshot, without the entries that have gone since. The package comment says why that is
// enough.
type view struct {
	complete uint64
	entries  []Entry // by number
	// gone has, for some keys, the number before which all entries of the key have
	// gone. It is needed where the number is beyond complete: an answer that is under
	// way may still show them.
	gone map[string]uint64
}

func newView() *view { return &view{gone: make(map[string]uint64)} }

// index returns the index of the entry with a number, or for it.
func (v *view) index(number uint64) int {
	i, _ := slices.BinarySearchFunc(v.entries, number, func(e Entry, number uint64) int { return cmp.Compare(e.Number, number) })
	return i
}

// has reports whether the view shows an entry.
func (v *view) has(e Entry) bool {
	i := v.index(e.Number)
	return i < len(v.entries) && v.entries[i].Number == e.Number && v.entries[i].Key == e.Key
}

// remove removes an entry that has gone.
func (v *view) remove(g Gone) {
	if g.Before > v.complete+1 {
		v.gone[g.Key] = max(g.Before, v.gone[g.Key])
	}
	switch i := slices.IndexFunc(v.entries, func(e Entry) bool { return e.Key == g.Key && e.Number < g.Before }); {
	case i == 0: // the usual case, in which no other entry need be moved
		v.entries = v.entries[1:]
	case i > 0:
		v.entries = slices.Delete(v.entries, i, i+1)
	}
}

// merge takes in a snapshot, unless a newer one is known. An entry that it shows, and that the
// view lacks, has gone if the view is complete up to its number.
func (v *view) merge(s Snapshot) {
	if s.Complete < v.complete {
		return
	}
	entries := slices.DeleteFunc(s.Entries, func(e Entry) bool {
		return e.Number > s.Complete || e.Number < v.gone[e.Key] || e.Number <= v.complete && !v.has(e)
	})
	slices.SortFunc(entries, func(a, b Entry) int { return cmp.Compare(a.Number, b.Number) })
	v.complete, v.entries = s.Complete, entries
	maps.DeleteFunc(v.gone, func(_ string, before uint64) bool { return before <= v.complete+1 })
}

// reset forgets everything: the store has lost its past.
func (v *view) reset() { *v = *newView() }

// granted returns the numbers of the entries that are granted, by the rule of
// driver.Grantable. limit returns the limit of a waiter of this driver. For other
// tickets it may return anything, since their grants are not used.
func (v *view) granted(limit func(Entry) int) (numbers []uint64) {
	for i, e := range v.entries {
		switch {
		case !e.Shared && i > 0:
			return numbers
		case !e.Shared:
			return []uint64{e.Number}
		}
		if l := limit(e); l == 0 || i < l {
			numbers = append(numbers, e.Number)
		}
	}
	return numbers
}

// frees reports whether a waiter is granted as soon as the entry with a key has gone.
func (v *view) frees(key string, t Entry) bool {
	ahead := 0
	for _, e := range v.entries[:v.index(t.Number)] {
		switch {
		case e.Key == key:
		case !e.Shared || !t.Shared:
			return false
		default:
			ahead++
		}
	}
	return t.Number <= v.complete && (t.Limit == 0 || ahead < t.Limit)
}

// blockers returns the entries that block a ticket, in order. All of them have to go
// before the ticket is granted or, with anyOf, perhaps only some: if they are permits, or
// if another ticket of this driver may be granted before this one.
func (v *view) blockers(t Entry, others bool) (ahead []Entry, anyOf bool) {
	ahead = v.entries[:v.index(t.Number)]
	if !t.Shared {
		return ahead, false
	}
	var exclusive []Entry
	for _, e := range ahead {
		if !e.Shared {
			exclusive = append(exclusive, e)
		}
	}
	if exclusive != nil {
		return exclusive, false
	}
	return ahead, t.Limit != 1 || others
}
