package sqlite

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Acquire implements driver.Driver: one transaction queues the ticket, and grants it
// if its turn has come. If not, the background task does so later (see watch).
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	select {
	case <-d.closing:
		return driver.Grant{}, driver.ErrClosed
	default:
	}
	d.listen() // before the ticket is queued, so that its turn cannot come unheard
	w := d.waiters.add(r.ID)
	defer d.waiters.remove(r.ID, w)

	asked := time.Now()
	token, err := ask(ctx, d.s, d.closing, writes, func(t *tx) (uint64, error) { return t.acquire(d, r, w) })
	if err != nil {
		return driver.Grant{}, err
	}
	if token != 0 {
		return driver.Grant{Token: token, Asked: asked}, nil
	}
	if d.resting.Load() {
		d.listener.wake()
	}
	if r.Joined != nil {
		r.Joined()
	}
	select {
	case a := <-w.answer:
		return a.grant, a.err
	case <-ctx.Done():
		return driver.Grant{}, errors.Join(context.Cause(ctx), d.s.lastError())
	case <-d.closing:
		return driver.Grant{}, driver.ErrClosed
	}
}

// acquire returns the token of a ticket that is granted, and 0 if it has to wait.
func (t *tx) acquire(d *Driver, r driver.Request, w *waiter) (uint64, error) {
	name := []byte(r.Name)
	token, held, err := t.enqueue(d.process, name, r)
	if err != nil {
		return 0, err
	}
	if held { // asked again: the first answer was lost
		return token, t.exec(sqlExtend, t.after(r.TTL), r.ID, name)
	}
	queue, _, err := t.head(name)
	if err != nil {
		return 0, err
	}
	for i, granted := range driver.Granted(queue) {
		if granted && queue[i].Token == token {
			return token, t.exec(sqlHold, bounded(r.TTL), t.now, t.after(r.TTL), token)
		}
	}
	if !r.Wait {
		return 0, driver.ErrNotAcquired // and the transaction is undone: nobody has seen the ticket (D6)
	}
	return 0, t.wait(d, w)
}

// enqueue inserts a ticket, or finds it where it is.
func (t *tx) enqueue(process string, name []byte, r driver.Request) (token uint64, held bool, err error) {
	inserted, err := t.row([]any{&token}, sqlInsert, name, r.ID, process, []byte(r.Owner), []byte(r.Note),
		r.Shared, permitsOf(r), bounded(r.TTL), t.now)
	if err != nil || inserted {
		return token, false, err
	}
	var state string
	found, err := t.row([]any{&token, &state}, sqlFind, r.ID, name)
	if err == nil && !found {
		err = errors.New("the ticket's ID is that of a ticket of another name")
	}
	return token, state == "held", err
}

// wait makes the process known, whose heartbeat the ticket lives by.
func (t *tx) wait(d *Driver, w *waiter) error {
	known, err := t.beat(d)
	if err == nil && !known {
		err = t.exec(sqlRegister, d.process, t.after(liveness))
	}
	if err == nil {
		d.waiters.queue(w)
	}
	return err
}

// beat is the heartbeat of the process. If it is not known it was silent for too long, and
// its waiting tickets were removed with it, or it has none.
func (t *tx) beat(d *Driver) (known bool, err error) {
	n, err := t.count(sqlHeartbeat, t.after(liveness), d.process)
	if err == nil && n == 0 {
		d.waiters.lose()
	}
	return n > 0, err
}

// waiters are the tickets of this process that wait, by ID.
type waiters struct {
	mu   sync.Mutex
	byID map[string]*waiter
}

type waiter struct {
	queued bool // the ticket is in the queue; guarded by mu
	answer chan answer
}

type answer struct {
	grant driver.Grant
	err   error
}

// add makes a ticket known before it is asked for: its grant may come before the
// request has returned.
func (ws *waiters) add(id string) *waiter {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := &waiter{answer: make(chan answer, 1)}
	ws.byID[id] = w
	return w
}

func (ws *waiters) remove(id string, w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.byID[id] == w {
		delete(ws.byID, id)
	}
}

func (ws *waiters) queue(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.queued = true
}

// queued are the IDs of those whose tickets are in the queue.
func (ws *waiters) queued() (ids []string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for id, w := range ws.byID {
		if w.queued {
			ids = append(ids, id)
		}
	}
	return ids
}

// waiting tells whether there are any.
func (ws *waiters) waiting() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.byID {
		if w.queued {
			return true
		}
	}
	return false
}

// deliver answers one of them, once.
func (ws *waiters) deliver(id string, a answer) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.byID[id]; w != nil && w.queued {
		w.queued = false
		w.answer <- a
	}
}

// lose tells all of them that their tickets have left the queue.
func (ws *waiters) lose() {
	for _, id := range ws.queued() {
		ws.deliver(id, answer{err: driver.ErrLost})
	}
}
