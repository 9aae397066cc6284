package kvqueue

import (
	"cmp"
	"slices"
)

// view is what is known of a queue while a ticket of this driver waits in it: all
// live entries with numbers up to complete, perhaps some that have gone, and some with
// larger numbers. The package comment says why that is enough.
type view struct {
	complete uint64
	entries  []Entry           // by number
	numbers  map[string]uint64 // of each key
	// gone has, for some keys, the number before which all entries of the key have
	// gone. It is needed where the number is beyond complete: an answer that is under
	// way may still show them.
	gone map[string]uint64
}

func newView() *view {
	return &view{numbers: make(map[string]uint64), gone: make(map[string]uint64)}
}

// index returns the index of the entry with a number, or for it.
func (v *view) index(number uint64) int {
	if n := len(v.entries); n == 0 || v.entries[n-1].Number < number {
		return n // the usual case
	}
	i, _ := slices.BinarySearchFunc(v.entries, number, func(e Entry, number uint64) int { return cmp.Compare(e.Number, number) })
	return i
}

// has reports whether the view shows an entry.
func (v *view) has(e Entry) bool { return v.numbers[e.Key] == e.Number }

// add takes in an entry that an answer shows, unless it is known to have gone.
func (v *view) add(e Entry) {
	if e.Number <= v.complete || e.Number < v.gone[e.Key] {
		return
	}
	if old, ok := v.numbers[e.Key]; ok {
		if old >= e.Number {
			return
		}
		v.cut(v.index(old)) // its key is used again
	}
	v.numbers[e.Key] = e.Number
	v.entries = slices.Insert(v.entries, v.index(e.Number), e)
}

// cut removes the entry at i.
func (v *view) cut(i int) {
	delete(v.numbers, v.entries[i].Key)
	if i == 0 { // the usual case, in which no other entry need be moved
		v.entries[0] = Entry{}
		v.entries = v.entries[1:]
		return
	}
	v.entries = slices.Delete(v.entries, i, i+1)
}

// remove removes an entry that has gone.
func (v *view) remove(g Gone) {
	if g.Before > v.complete+1 {
		v.gone[g.Key] = max(g.Before, v.gone[g.Key])
	}
	if number, ok := v.numbers[g.Key]; ok && number < g.Before {
		v.cut(v.index(number))
	}
}

// merge takes in a snapshot; answers may arrive in any order. If one of the two lacks an
// entry that the other shows, and is complete up to its number, the entry has gone.
func (v *view) merge(s Snapshot) {
	byNumber := func(a, b Entry) int { return cmp.Compare(a.Number, b.Number) }
	slices.SortFunc(s.Entries, byNumber)
	v.entries = slices.DeleteFunc(v.entries, func(e Entry) bool {
		i, shown := slices.BinarySearchFunc(s.Entries, e, byNumber)
		if e.Number > s.Complete || shown && s.Entries[i].Key == e.Key {
			return false
		}
		delete(v.numbers, e.Key)
		return true
	})
	for _, e := range s.Entries {
		v.add(e)
	}
	if s.Complete <= v.complete {
		return
	}
	v.complete = s.Complete
	for key, before := range v.gone {
		if before <= v.complete+1 {
			delete(v.gone, key)
		}
	}
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
