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
	d    driver.Driver
	ctx  context.Context
	stop context.CancelFunc

	mu      sync.Mutex
	tickets [len(retry.Late) + 1][]orphan // by answered removals; each in the order in which they are due
	running bool                          // there is a goroutine
	closed  bool
	group   sync.WaitGroup
}

type orphan struct {
	hold driver.Hold
	due  time.Time
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
	o.tickets[0] = append(o.tickets[0], orphan{hold: h, due: time.Now()})
	if !o.running {
		o.running = true
		o.group.Go(o.work)
	}
}

// work is the goroutine: it ends when nothing is left.
func (o *orphans) work() {
	pause := newBackoff()
	for {
		t, looks, wait := o.next()
		switch {
		case looks < 0:
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
		o.answered(t, looks, err == nil)
	}
}

// next returns the ticket that is due first, how many of its removals were answered, and
// how long until it is due. If looks is below 0, nothing is left.
func (o *orphans) next() (t orphan, looks int, wait time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	looks = -1
	for i, ts := range o.tickets {
		if len(ts) > 0 && (looks < 0 || ts[0].due.Before(t.due)) {
			t, looks = ts[0], i
		}
	}
	if looks < 0 {
		o.running = false
		return orphan{}, looks, 0
	}
	return t, looks, time.Until(t.due)
}

// answered removes the ticket that next has returned. If the store did not have it, it is
// put off to the next of the late checks, if any is left.
func (o *orphans) answered(t orphan, looks int, removed bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.tickets[looks] = o.tickets[looks][1:]
	if !removed && looks < len(retry.Late) {
		t.due = time.Now().Add(retry.Late[looks])
		o.tickets[looks+1] = append(o.tickets[looks+1], t)
	}
}

// close stops the goroutine. What is left ends with its lease or its process.
func (o *orphans) close() {
	o.mu.Lock()
	o.closed = true
	o.mu.Unlock()
	o.stop()
	o.group.Wait()
}
