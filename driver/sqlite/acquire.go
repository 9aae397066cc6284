package sqlite

import (
	"cmp"
	"context"
	"errors"
	"slices"
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
	w := d.waiters.add(r)
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
	q, err := t.head(name, permitsOf(r))
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(q.tickets, func(o driver.Ticket) bool { return o.ID == r.ID })
	if i >= 0 && driver.Grantable(q.tickets, i) { // asked again: an answer was lost
		return q.tickets[i].Token, t.holdOn(q.tickets[i].Token, name, r)
	}
	if i < 0 && driver.Grantable(append(q.tickets, r.Ticket(0)), len(q.tickets)) {
		return t.insert(d.process, name, r, "held", t.after(r.TTL))
	}
	if !r.Wait {
		return 0, driver.ErrNotAcquired // nothing was written (D6)
	}
	if _, err := t.insert(d.process, name, r, "waiting", nil); err != nil {
		return 0, err
	}
	return 0, t.wait(d, w)
}

// insert adds a ticket at the end of the queue and returns its number. One that is
// there, because it is asked for again, is left as it is.
func (t *tx) insert(process string, name []byte, r driver.Request, state string, expires any) (uint64, error) {
	n, token, err := t.count(sqlInsert, name, r.ID, process, []byte(r.Owner), []byte(r.Note),
		r.Shared, permitsOf(r), bounded(r.TTL), state, t.now, expires)
	if err == nil && n == 0 && state == "held" {
		err = errors.New("the ticket's ID is in use for another name")
	}
	return uint64(token), err //nolint:gosec // AUTOINCREMENT begins at 1
}

// holdOn makes a ticket a holder's, or its lease as long as it is asked for.
func (t *tx) holdOn(token uint64, name []byte, r driver.Request) error {
	return cmp.Or(t.exec(sqlHold, t.now, t.now, token), t.exec(sqlExtend, t.after(r.TTL), name, r.ID))
}

// wait makes the process known, whose heartbeat the ticket lives by.
func (t *tx) wait(d *Driver, w *waiter) error {
	known, err := t.keepAlive(d)
	if err == nil && !known {
		err = t.exec(sqlRegister, d.process, t.after(liveness))
	}
	if err == nil {
		d.waiters.queue(w)
	}
	return err
}

// keepAlive is the heartbeat of the process. If it is not known it was silent for too long, and
// its waiting tickets were removed with it, or it has none.
func (t *tx) keepAlive(d *Driver) (known bool, err error) {
	n, _, err := t.count(sqlHeartbeat, t.after(liveness), d.process)
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
	name   string
	queued bool // the ticket is in the queue; guarded by mu
	answer chan answer
}

type answer struct {
	grant driver.Grant
	err   error
}

// add makes a ticket known before it is asked for: its grant may come before the
// request has returned.
func (ws *waiters) add(r driver.Request) *waiter {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w := &waiter{name: r.Name, answer: make(chan answer, 1)}
	ws.byID[r.ID] = w
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

// queued are those whose tickets are in the queue: the name of each by its ID.
func (ws *waiters) queued() map[string]string {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	names := make(map[string]string)
	for id, w := range ws.byID {
		if w.queued {
			names[id] = w.name
		}
	}
	return names
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
	for id := range ws.queued() {
		ws.deliver(id, answer{err: driver.ErrLost})
	}
}
