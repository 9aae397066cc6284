package casqueue

import (
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

// notifyAll notifies the processes whose tickets do not wait any more: a change has granted or removed them. It leaves out
// those that read the queue. With mu held.
func (e *Engine) notifyAll(before, after *document) {
	processes := make(map[string][]byte)
	for _, q := range before.Queues {
		wait := after.find(q.Name).waiters()
		for id, process := range q.waiters() {
			if _, waits := wait[id]; !waits && process != e.process {
				processes[process] = e.unique()
			}
		}
	}
	for process, content := range processes {
		e.notice(func() {
			// If this fails, the process notices the change by itself.
			e.answered(e.store.Set(e.life, e.notifyKey(process), content, keepEmpty))
		})
	}
}

// notice starts a goroutine for which Close waits a moment. With mu held.
func (e *Engine) notice(f func()) {
	if e.closing {
		return
	}
	e.notices.Add(1)
	e.life.Go(func() {
		defer e.notices.Done()
		f()
	})
}

// waiters returns the processes of the tickets that are not granted, by ticket, without those that read the queue.
func (q *queue) waiters() map[string]string {
	all := make(map[string]string)
	for i, granted := range driver.Granted(q.views()) {
		if !granted && !q.Tickets[i].Polls {
			all[q.Tickets[i].ID] = q.Tickets[i].Process
		}
	}
	return all
}

// follow has the store report notifications. Without that the engine polls, so follow asks a store that refuses less
// and less often.
func (e *Engine) follow(w Watcher) {
	for pause := failedPoll; e.life.Err() == nil; pause = min(2*pause, mostFollow) {
		_ = w.Watch(e.life, e.notifyKey(e.process), func() {
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
		retry.Sleep(e.life, pause, nil)
	}
}
