package sqlite

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// waiters are the waiting tickets of this process, by ID.
type waiters struct {
	mu   sync.Mutex
	byID map[string]*waiter
}

// waiter is a waiting ticket. It is added when the ticket is queued.
type waiter struct {
	name    string
	answer  chan answer
	removed bool // its Acquire has returned; guarded by mu
}

// answer ends a wait.
type answer struct {
	grant driver.Grant
	err   error
}

func (ws *waiters) add(id string, w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if !w.removed {
		ws.byID[id] = w
	}
}

func (ws *waiters) remove(id string, w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.removed = true
	if ws.byID[id] == w {
		delete(ws.byID, id)
	}
}

// names returns the name of each waiter by its ID.
func (ws *waiters) names() map[string]string {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	names := make(map[string]string)
	for id, w := range ws.byID {
		names[id] = w.name
	}
	return names
}

// any reports whether there are any.
func (ws *waiters) any() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.byID) > 0
}

// deliver ends the wait of one of them.
func (ws *waiters) deliver(id string, a answer) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w := ws.byID[id]; w != nil {
		delete(ws.byID, id)
		w.answer <- a
	}
}

// lose ends all waits: the tickets have left the queue.
func (ws *waiters) lose() {
	for id := range ws.names() {
		ws.deliver(id, answer{err: driver.ErrLost})
	}
}

// wait adds a waiter, and the process whose heartbeat its ticket depends on.
func (t *tx) wait(d *Driver, id string, w *waiter) error {
	known, err := t.heartbeat(d)
	if err == nil && !known {
		err = t.exec(sqlRegister, d.process, t.after(liveness))
	}
	if err == nil {
		d.waiters.add(id, w)
	}
	return err
}

// heartbeat shows that the process lives. If the process has no row, it has no waiting tickets, or it has sent
// no heartbeat for too long and they were removed with the row.
func (t *tx) heartbeat(d *Driver) (known bool, err error) {
	n, _, err := t.count(sqlHeartbeat, t.after(liveness), d.process)
	if err == nil && n == 0 {
		d.waiters.lose()
	}
	return n > 0, err
}

// start starts the background task, with the first ticket.
func (d *Driver) start() {
	d.started.Do(func() {
		d.listener = listen(d.s.path, d.process)
		go d.serve()
	})
}

// serve is the background task. It claims the grants of this process, sends heartbeats while the process waits,
// and reaps what has expired. It is notified of grants and losses, and polls for what expires.
func (d *Driver) serve() {
	defer close(d.ended)
	p := poller{d: d}
	for {
		d.listener.wait(p.next())
		select {
		case <-d.closing:
			return
		default:
			p.poll()
		}
	}
}

// poller is the state of the background task.
type poller struct {
	d             *Driver
	lastHeartbeat time.Time
	lastWait      time.Time // when there was a waiter
	soonest       time.Time // when the next lease, process or loss expires
	unknown       bool      // the outcome of the last transaction is unknown
}

// next returns how long to wait for a notification. A process that waited a moment ago goes on polling.
func (p *poller) next() time.Duration {
	p.d.idle.Store(true) // before it checks for waiters: a ticket that is queued after that wakes it
	if p.d.waiters.any() {
		p.lastWait = time.Now()
	}
	idle := time.Since(p.lastWait) > heartbeat
	p.d.idle.Store(idle)
	switch {
	case idle:
		return p.d.sweep
	case p.unknown:
		return retryInterval
	}
	return max(time.Millisecond, min(p.d.listener.interval(), time.Until(p.lastHeartbeat.Add(heartbeat)), time.Until(p.soonest)))
}

// poll does what is due.
func (p *poller) poll() {
	ctx, cancel := context.WithTimeout(context.Background(), liveness/2)
	defer cancel()
	heartbeatDue := time.Since(p.lastHeartbeat) >= heartbeat*9/10 && p.d.waiters.any()
	asked, unknown := time.Now(), p.unknown
	f, err := run(ctx, p.d.s, p.d.closing, writes, func(t *tx) (findings, error) { return t.poll(p.d, heartbeatDue, unknown) })
	p.unknown = err != nil
	if err != nil {
		return
	}
	p.soonest = time.Now().Add(f.soonest)
	if heartbeatDue {
		p.lastHeartbeat = asked
	}
	p.d.deliver(f, asked)
}

// findings are what the background task has found.
type findings struct {
	soonest time.Duration     // until the next lease, process or loss expires
	grants  map[string]uint64 // tokens by ID
	gone    []string          // IDs of waiters whose tickets are not in the queue
	broken  []driver.Hold
}

// poll sends a heartbeat if it is due, claims grants, and reads losses.
func (t *tx) poll(d *Driver, heartbeatDue, unknown bool) (f findings, err error) {
	if heartbeatDue {
		if _, err := t.heartbeat(d); err != nil {
			return f, err
		}
	}
	f.soonest, f.grants = time.Duration(t.soonest-t.now), make(map[string]uint64)
	if err := t.claim(d, f.grants); err != nil {
		return f, err
	}
	if f.broken, err = t.losses(d); err == nil && unknown {
		err = t.resolve(d, &f)
	}
	return f, err
}

// claim makes the grantable tickets of the process holders.
func (t *tx) claim(d *Driver, grants map[string]uint64) error {
	err := t.rows(func(scan scanner) (bool, error) {
		var id string
		var token uint64
		err := scan(&token, &id)
		grants[id] = token
		return true, err
	}, sqlGrantable, d.process)
	for _, token := range grants {
		err = cmp.Or(err, t.exec(sqlHold, t.now, t.now, token))
	}
	return err
}

// losses reads and removes the losses of the process.
func (t *tx) losses(d *Driver) (broken []driver.Hold, err error) {
	err = t.rows(func(scan scanner) (bool, error) {
		var h driver.Hold
		var name []byte
		err := scan(&h.Token, &name, &h.ID, &h.Shared)
		h.Name = string(name)
		broken = append(broken, h)
		return true, err
	}, sqlLosses, d.process)
	if err == nil && len(broken) > 0 {
		err = t.exec(sqlRemoveLosses, d.process)
	}
	return broken, err
}

// resolve checks the ticket of every waiter, after a transaction of unknown outcome: the ticket may have been
// granted, or be gone, and the answer lost.
func (t *tx) resolve(d *Driver, f *findings) error {
	for id, name := range d.waiters.names() {
		tk, found, err := t.find(name, sqlFind, id)
		switch {
		case err != nil:
			return err
		case !found:
			f.gone = append(f.gone, id)
		case tk.held:
			if err := t.exec(sqlExtend, t.now+tk.ttl, []byte(name), id); err != nil {
				return err
			}
			f.grants[id] = tk.Token
		}
	}
	return nil
}

// deliver ends the waits, and notifies the core of the losses.
func (d *Driver) deliver(f findings, asked time.Time) {
	for id, token := range f.grants {
		d.waiters.deliver(id, answer{grant: driver.Grant{Token: token, Asked: asked}})
	}
	for _, id := range f.gone {
		d.waiters.deliver(id, answer{err: driver.ErrLost})
	}
	for _, h := range f.broken {
		d.waiters.deliver(h.ID, answer{err: errBroken})
		if d.notifyLoss != nil {
			d.notifyLoss(h, errBroken)
		}
	}
}
