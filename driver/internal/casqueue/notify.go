package casqueue

import (
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

// notifyAll notifies the processes whose tickets a change has granted or removed or, if they poll, made the next. With mu
// held.
func (e *Engine) notifyAll(before, after *document) {
	_, reports := e.store.(Watcher)
	processes := make(map[string][]byte)
	for _, q := range before.Queues {
		old := statuses(q)
		now := statuses(after.find(q.Name))
		for i := range q.Tickets {
			r := &q.Tickets[i]
			if s, there := now[r.ID]; r.Process != e.process && (!there || s > old[r.ID] && (s == granted || !reports)) {
				processes[r.Process] = e.unique()
			}
		}
	}
	for process, content := range processes {
		e.notice(func() {
			// If this fails, the process notices the change by itself.
			e.answered(e.store.Set(e.ctx, e.notifyKey(process), content, keepEmpty))
		})
	}
}

// notice starts a goroutine for which Close waits a moment. With mu held.
func (e *Engine) notice(f func()) {
	if e.closing {
		return
	}
	e.notices.Add(1)
	e.spawn(func() {
		defer e.notices.Done()
		f()
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

// follow has the store report notifications. Without that the engine polls, so follow asks a store that refuses less
// and less often.
func (e *Engine) follow(w Watcher) {
	for pause := failedPoll; e.ctx.Err() == nil; pause = min(2*pause, mostFollow) {
		_ = w.Watch(e.ctx, e.notifyKey(e.process), func() {
			e.mu.Lock()
			e.watches, e.notified = true, true
			e.mu.Unlock()
			e.wakeTask()
		})
		e.mu.Lock()
		if e.watches {
			pause = failedPoll
		}
		e.watches = false
		e.mu.Unlock()
		e.wakeTask() // to poll
		retry.Sleep(e.ctx, pause, nil)
	}
}
