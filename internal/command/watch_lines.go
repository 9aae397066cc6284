package command

import (
	"fmt"
	"io"
	"reflect"
	"time"

	"github.com/lockerproject/locker"
)

// changeJSON is a change as locker watch --json prints it.
type changeJSON struct {
	Time time.Time `json:"time"` // when it was seen
	queueJSON
}

// changes prints a line for each queue, and then for each change.
type changes struct {
	*app
	seen map[string]locker.Queue
	down bool
}

func (c *changes) show(l reading) {
	switch {
	case l.err != nil && !c.down:
		c.say("%v", l.err)
	case l.err == nil && c.down:
		c.say("the store answers again")
	}
	if c.down = l.err != nil; c.down {
		return
	}
	changed, now := changesOf(c.seen, l.queues)
	c.seen = now
	for _, q := range changed {
		j := changeJSON{Time: l.at.UTC().Round(time.Millisecond), queueJSON: newQueueJSON(q, l.at)}
		c.print(j, func(w io.Writer) { writeChange(w, q, l.at) })
	}
}

// changesOf are the queues whose holders or waiters are others than before, and
// those that are empty now. It also returns what is seen now.
func changesOf(seen map[string]locker.Queue, queues []locker.Queue) (changes []locker.Queue, now map[string]locker.Queue) {
	now = make(map[string]locker.Queue, len(queues))
	for _, q := range queues {
		now[q.Name] = q
		if !reflect.DeepEqual(timeless(q), timeless(seen[q.Name])) {
			changes = append(changes, q)
		}
	}
	for name := range seen {
		if _, there := now[name]; !there {
			changes = append(changes, locker.Queue{Name: name})
		}
	}
	return changes, now
}

// timeless returns the tickets of a queue without times: the remaining time changes by
// itself, and a store may compute another Since at each reading.
func timeless(q locker.Queue) []locker.Ticket {
	ts := make([]locker.Ticket, len(q.Tickets))
	for i, t := range q.Tickets {
		t.Remaining, t.Since = 0, time.Time{}
		ts[i] = t
	}
	return ts
}

func writeChange(w io.Writer, q locker.Queue, at time.Time) {
	holders, waiters := tally(q)
	state := "free"
	if holders > 0 {
		first := q.Tickets[0]
		state = fmt.Sprintf("held by %s (token %d)", printable(first.Owner), first.Token)
		if holders > 1 {
			state += fmt.Sprintf(" +%d", holders-1)
		}
	}
	if waiters > 0 {
		state += ", " + count(waiters, "waiter", "waiters")
	}
	fmt.Fprintf(w, "%s  %s  %s\n", at.Format(time.TimeOnly), printable(q.Name), state)
}
