package casqueue

import (
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

// notifyAll notifies the processes of the tickets that a change has granted, made the next, or removed. With mu
// held.
func (e *Engine) notifyAll(before, after *document) {
	processes := make(map[string][]byte)
	for _, q := range before.Queues {
		old := statuses(q)
		now := statuses(after.find(q.Name))
		for i := range q.Tickets {
			r := &q.Tickets[i]
			if s, there := now[r.ID]; r.Process != e.process && (!there || s > old[r.ID]) {
				processes[r.Process] = e.unique()
			}
		}
	}
	if len(processes) == 0 {
		return
	}
	e.spawn(func() {
		for process, content := range processes {
			// Without an answer the process finds out by itself.
			e.answered(e.store.Set(e.ctx, e.notifyKey(process), content, keepEmpty))
		}
	})
}

// status is where a ticket is in its queue.
type status uint8

const (
	behind status = iota
	next          // the first that is not granted
	granted
)

// statuses returns where the tickets of a queue are, by ID.
func statuses(q *queue) map[string]status {
	all := make(map[string]status, len(q.Tickets))
	first := true
	for i, is := range driver.Granted(q.views()) {
		switch {
		case is:
			all[q.Tickets[i].ID] = granted
		case first:
			all[q.Tickets[i].ID] = next
			first = false
		default:
			all[q.Tickets[i].ID] = behind
		}
	}
	return all
}

// follow has the store tell of notifications.
func (e *Engine) follow(w Watcher) {
	for e.ctx.Err() == nil {
		_ = w.Watch(e.ctx, e.notifyKey(e.process), func() {
			e.mu.Lock()
			e.watches = true
			e.mu.Unlock()
			e.hurry()
		})
		e.mu.Lock()
		e.watches = false
		e.mu.Unlock()
		retry.Sleep(e.ctx, failedPoll, nil)
	}
}
