package compose

import (
	"context"
	"errors"
	"slices"
	"sort"
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
//
// An orphan whose removal fails is put off, longer each time, so that it delays the others
// by one request at most.
type orphans struct {
	d     driver.Driver
	tasks *background

	mu      sync.Mutex
	tickets []*orphan // the one that is due first is the first
	running bool      // there is a goroutine
}

type orphan struct {
	hold  driver.Hold
	due   time.Time
	looks int           // answered removals: the store did not have the ticket
	pause retry.Backoff // after a removal that failed
}

func newOrphans(d driver.Driver, tasks *background) *orphans {
	return &orphans{d: d, tasks: tasks}
}

func (o *orphans) add(h driver.Hold) {
	pause := retry.Backoff{First: retry.Usual().First, Most: 5 * time.Second}
	o.put(&orphan{hold: h, due: time.Now(), pause: pause})
}

func (o *orphans) put(t *orphan) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := sort.Search(len(o.tickets), func(i int) bool { return o.tickets[i].due.After(t.due) })
	o.tickets = slices.Insert(o.tickets, i, t)
	if !o.running {
		o.running = o.tasks.run(o.work)
	}
}

// work is the goroutine: it ends when nothing is left.
func (o *orphans) work() {
	away := retry.Usual()
	for {
		t, wait := o.next()
		switch {
		case t == nil:
			return
		case wait > 0:
			// Not for longer than a second, since a ticket may be added meanwhile.
			if !retry.Sleep(o.tasks.ctx, min(wait, time.Second), nil) {
				return
			}
			continue
		}
		err := o.remove(t)
		switch {
		case errors.Is(err, driver.ErrClosed):
			return
		case !driver.IsUnavailable(err):
			away.Reset()
		case !retry.Sleep(o.tasks.ctx, away.Next(), nil):
			return
		}
	}
}

// next takes the ticket that is due first, or returns how long until it is due. If there is
// none, nothing is left.
func (o *orphans) next() (t *orphan, wait time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.tickets) == 0 {
		o.running = false
		return nil, 0
	}
	t = o.tickets[0]
	if wait = time.Until(t.due); wait <= 0 {
		o.tickets[0] = nil
		o.tickets = o.tickets[1:]
	}
	return t, wait
}

// remove asks the store once to remove a ticket, and puts the ticket back if that failed. If
// the store did not have it, it is put off to the next of the late checks, if any is left.
func (o *orphans) remove(t *orphan) error {
	ctx, cancel := context.WithTimeout(o.tasks.ctx, orphanBound)
	defer cancel()
	err := o.d.Release(ctx, t.hold)
	switch {
	case err == nil:
		return nil
	case !errors.Is(err, driver.ErrLost):
		t.due = time.Now().Add(t.pause.Next())
	case t.looks == len(retry.LateChecks):
		return err
	default:
		t.pause.Reset()
		t.due = time.Now().Add(retry.LateChecks[t.looks])
		t.looks++
	}
	o.put(t)
	return err
}
