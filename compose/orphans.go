package compose

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

// orphanBound bounds one request for the removal of an orphan.
const orphanBound = time.Second

// orphans are the tickets that one of several stores may have by a request without an
// answer: the primary of Fallback, when the secondary was asked instead, or a store of
// All that did not have the ticket when it was released. The core knows of one ticket
// only, so the orphans are removed here: in the background, one after the other, each
// until the store has confirmed it.
type orphans struct {
	d     driver.Driver
	tasks *background

	mu      sync.Mutex
	queue   []orphan // one whose removal fails goes to the end, so it delays each of the others by one request
	running bool     // there is a goroutine
}

type orphan struct {
	hold  driver.Hold
	looks int // answered removals: the store did not have the ticket
}

func newOrphans(d driver.Driver, tasks *background) *orphans {
	return &orphans{d: d, tasks: tasks}
}

func (o *orphans) add(h driver.Hold) { o.put(orphan{hold: h}) }

func (o *orphans) put(t orphan) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.queue = append(o.queue, t)
	if !o.running {
		o.running = o.tasks.run(o.work)
	}
}

// work is the goroutine: it ends when nothing is left.
func (o *orphans) work() {
	pause := retry.Usual()
	for {
		t, ok := o.next()
		if !ok {
			return
		}
		switch err := o.remove(t); {
		case errors.Is(err, driver.ErrClosed):
			return
		case err == nil, errors.Is(err, driver.ErrLost):
			pause.Reset()
		default:
			o.put(t)
			if !retry.Sleep(o.tasks.ctx, pause.Next(), nil) {
				return
			}
		}
	}
}

// next takes the first one. It reports false if there is none: then nothing runs any more.
func (o *orphans) next() (t orphan, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.queue) == 0 {
		o.queue, o.running = nil, false
		return t, false
	}
	t, o.queue = o.queue[0], o.queue[1:]
	return t, true
}

// remove asks the store once to remove a ticket. If the store did not have it, the request for
// it may still be on its way: it is queued again at the next of the late checks, if any is left.
func (o *orphans) remove(t orphan) error {
	ctx, cancel := context.WithTimeout(o.tasks.ctx, orphanBound)
	defer cancel()
	err := o.d.Release(ctx, t.hold)
	if errors.Is(err, driver.ErrLost) && t.looks < len(retry.LateChecks) {
		time.AfterFunc(retry.LateChecks[t.looks], func() { o.put(orphan{t.hold, t.looks + 1}) })
	}
	return err
}
