package compose

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

// orphanBound bounds one request for the removal of an orphan.
const orphanBound = time.Second

// orphans are the tickets that one of several stores may have by a request whose answer
// is unknown: the primary of Fallback, when the secondary was asked instead, or a store of
// All, when the others have confirmed that they have none. The core knows of one ticket
// only, so that they are removed here: in the background, one after the other, each until
// the store has confirmed it.
type orphans struct {
	d    driver.Driver
	ctx  context.Context
	stop context.CancelFunc

	mu      sync.Mutex
	tickets []orphan
	running bool // there is a goroutine
	closed  bool
	group   sync.WaitGroup
}

type orphan struct {
	hold  driver.Hold
	due   time.Time
	looks int // that were answered
}

func newOrphans(d driver.Driver) *orphans {
	o := &orphans{d: d}
	o.ctx, o.stop = context.WithCancel(context.Background())
	return o
}

func (o *orphans) add(h driver.Hold) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	o.tickets = append(o.tickets, orphan{hold: h, due: time.Now()})
	if !o.running {
		o.running = true
		o.group.Go(o.work)
	}
}

// work is the goroutine: it ends when nothing is left.
func (o *orphans) work() {
	pause := newBackoff()
	for {
		t, wait, ok := o.next()
		switch {
		case !ok:
			return
		case wait > 0:
			// Not for longer than a second, since a ticket may be added meanwhile.
			if !retry.Sleep(o.ctx, min(wait, time.Second), nil) {
				return
			}
			continue
		}
		ctx, cancel := context.WithTimeout(o.ctx, orphanBound)
		err := o.d.Release(ctx, t.hold)
		cancel()
		if err != nil && !errors.Is(err, driver.ErrLost) {
			if errors.Is(err, driver.ErrClosed) || !retry.Sleep(o.ctx, pause.Next(), nil) {
				return
			}
			continue
		}
		pause.Reset()
		o.answered(t, err == nil)
	}
}

// next is the ticket that is due first, and in how long.
func (o *orphans) next() (t orphan, wait time.Duration, ok bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.tickets) == 0 {
		o.running = false
		return orphan{}, 0, false
	}
	t = slices.MinFunc(o.tickets, func(a, b orphan) int { return a.due.Compare(b.due) })
	return t, time.Until(t.due), true
}

// answered puts off a ticket that was not there, and forgets one that was removed or
// looked for often enough.
func (o *orphans) answered(t orphan, removed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.Index(o.tickets, t)
	if removed || t.looks == len(retry.Late) {
		o.tickets = slices.Delete(o.tickets, i, i+1)
		return
	}
	o.tickets[i].due = time.Now().Add(retry.Late[t.looks])
	o.tickets[i].looks++
}

// close stops the goroutine. What is left ends with its lease or its process.
func (o *orphans) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.stop()
	o.group.Wait()
}
