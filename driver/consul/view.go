package consul

import (
	"slices"
	"sort"

	"github.com/lockerproject/locker/driver"
)

// A view is what a driver knows of a queue: its live tickets up to a Raft index,
// and perhaps some that have gone meanwhile.
//
// A ticket's number is the Raft index of its creation, which is given once; a key
// is used again, with a larger number. So what is ahead of a ticket only ever
// goes away: after an index no number below it appears, and a ticket that has gone
// stays gone. A ticket that the view grants is granted, however old the view
// is. An old view can only be too cautious.
type view struct {
	tickets  []queued // by number; a part of them may have gone
	complete uint64   // every live ticket with a number up to this is in tickets
}

// queued is a ticket in a view.
type queued struct {
	number uint64
	modify uint64
	key    string
	shared bool
	limit  int
}

func (e entry) queued() queued {
	return queued{number: e.CreateIndex, modify: e.ModifyIndex, key: e.Key, shared: e.Shared, limit: e.Limit}
}

// replace takes over a queue that was read at the given index or later. Unless
// exact says that it was read after all that the view knows had happened, an
// older queue is ignored.
func (v *view) replace(queue []entry, index uint64, exact bool) {
	if index < v.complete && !exact {
		return
	}
	later := v.tickets[v.find(index+1):] // created after the read
	tickets := make([]queued, 0, len(queue)+len(later))
	for _, e := range queue {
		tickets = append(tickets, e.queued())
	}
	for _, t := range later {
		if len(tickets) == 0 || t.number > tickets[len(tickets)-1].number {
			tickets = append(tickets, t)
		}
	}
	v.tickets = tickets
	v.complete = max(v.complete, index)
}

// add adds one ticket.
func (v *view) add(t queued) {
	if i := v.find(t.number); i == len(v.tickets) || v.tickets[i].number != t.number {
		v.tickets = slices.Insert(v.tickets, i, t)
	}
}

// remove removes a ticket that has gone from the store.
func (v *view) remove(number uint64) {
	i := v.find(number)
	switch {
	case !v.has(number):
	case i == 0: // mostly the first goes: without moving the others
		v.tickets[0] = queued{}
		v.tickets = v.tickets[1:]
	default:
		v.tickets = slices.Delete(v.tickets, i, i+1)
	}
}

// find returns the index of a number, or that which it would have.
func (v *view) find(number uint64) int {
	return sort.Search(len(v.tickets), func(i int) bool { return v.tickets[i].number >= number })
}

// has tells whether a ticket is in the view.
func (v *view) has(number uint64) bool {
	i := v.find(number)
	return i < len(v.tickets) && v.tickets[i].number == number
}

// granted calls yield for every ticket that is granted (driver.Grantable).
func (v *view) granted(yield func(number uint64)) {
	for i, t := range v.tickets {
		switch {
		case t.number > v.complete:
			return
		case !t.shared:
			if i == 0 {
				yield(t.number)
			}
			return // whatever follows an exclusive ticket is blocked
		case t.limit == 0 || i < t.limit:
			yield(t.number)
		}
	}
}

// blocker returns the ticket to watch for the one with the given number, which
// is the first of those that the caller waits for; false: no single ticket
// decides.
//
// Where several tickets ahead must all go, any of them may be watched. The
// last but one is the best choice: when it has gone, the queue is read again
// while the last still holds the lock, and when the last has gone nothing needs
// to be read.
func (v *view) blocker(number uint64) (queued, bool) {
	i := v.find(number)
	ahead := v.tickets[:i]
	exclusive := slices.DeleteFunc(slices.Clone(ahead), func(t queued) bool { return t.shared })
	switch permit := i == len(v.tickets) || v.tickets[i].shared; {
	case len(exclusive) > 0:
		ahead = exclusive
	case permit && (i == len(v.tickets) || v.tickets[i].limit != 1):
		return queued{}, false
	}
	if len(ahead) == 0 {
		return queued{}, false
	}
	return ahead[max(len(ahead)-2, 0)], true
}

// standing tells whether the ticket with the number is granted in the queue.
func standing(queue []entry, number uint64) bool {
	for i, e := range queue {
		if e.CreateIndex == number {
			return driver.Grantable(tickets(queue[:i+1]), i)
		}
	}
	return false
}
