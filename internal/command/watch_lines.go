package command

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"syscall"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/retry"
)

// interrupted is how a user's Ctrl-C ends a verb that reads the keyboard itself.
var interrupted = signalError{syscall.SIGINT}

// changeJSON is a change as locker watch --json prints it.
type changeJSON struct {
	Time time.Time `json:"time"` // when it was seen
	queueJSON
}

// watchLines prints a line for each queue, and then for each change.
func (a *app) watchLines(ctx context.Context, w *watcher, l reading) error {
	var seen map[string]locker.Queue
	for down := false; ; l = w.read(ctx) {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case l.err != nil && !down:
			a.say("%v", l.err)
		case l.err == nil && down:
			a.say("the store answers again")
		}
		if down = l.err != nil; !down {
			var changes []locker.Queue
			if changes, seen = changesOf(seen, l.queues); len(changes) > 0 {
				if err := a.printChanges(changes, l.at); err != nil {
					return err
				}
			}
		}
		retry.Sleep(ctx, w.pause(l), nil)
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

func (a *app) printChanges(changes []locker.Queue, at time.Time) error {
	for _, q := range changes {
		j := changeJSON{Time: at.UTC().Round(time.Millisecond), queueJSON: newQueueJSON(q, at)}
		if err := a.print(j, func(w io.Writer) error { return writeChange(w, q, at) }); err != nil {
			return err
		}
	}
	return nil
}

func writeChange(w io.Writer, q locker.Queue, at time.Time) error {
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
	_, err := fmt.Fprintf(w, "%s  %s  %s\n", at.Format(time.TimeOnly), printable(q.Name), state)
	return err
}
