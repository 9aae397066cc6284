package sqlite

import (
	"cmp"
	"context"
	"time"

	"github.com/lockerproject/locker/driver"
)

// listen starts the background task, with the first ticket.
func (d *Driver) listen() {
	d.listening.Do(func() {
		d.listener = listen(d.s.path, d.process)
		go d.watch()
	})
}

// watch is the background task: it claims what has become grantable for this process,
// shows that the process lives while it waits, and reaps what has expired. It is notified
// of the first; it looks for the others when they are due.
func (d *Driver) watch() {
	defer close(d.watching)
	w := watcher{d: d}
	for {
		notified := d.listener.wait(w.next())
		select {
		case <-d.closing:
			return
		default:
			w.look(notified)
		}
	}
}

type watcher struct {
	d             *Driver
	lastHeartbeat time.Time
	waited        time.Time // when somebody waited
	soonest       time.Time // when something expires next
	unsure        bool      // the last access failed: what it did has to be asked for
}

// next is how long to wait for a notification. A process that has just waited is ready
// to do so again.
func (w *watcher) next() time.Duration {
	if w.d.waiters.waiting() {
		w.waited = time.Now()
	}
	resting := time.Since(w.waited) > heartbeat
	w.d.resting.Store(resting)
	if resting {
		return w.d.sweep
	}
	if w.unsure {
		return afterFailure
	}
	due := min(w.d.listener.interval(), time.Until(w.lastHeartbeat.Add(heartbeat)), time.Until(w.soonest))
	return max(due, time.Millisecond)
}

// look does what is due.
func (w *watcher) look(notified bool) {
	ctx, cancel := context.WithTimeout(context.Background(), liveness/2)
	defer cancel()
	heartbeatDue := time.Since(w.lastHeartbeat) >= heartbeat*9/10 && w.d.waiters.waiting()
	if !notified && !heartbeatDue && !w.unsure && !w.peek(ctx) {
		return
	}
	asked, unsure := time.Now(), w.unsure
	f, err := ask(ctx, w.d.s, w.d.closing, writes, func(t *tx) (findings, error) {
		return t.look(w.d, heartbeatDue, unsure)
	})
	w.unsure = err != nil
	if err != nil {
		return
	}
	w.expect(f.soonest)
	if heartbeatDue {
		w.lastHeartbeat = asked
	}
	for id, token := range f.grants {
		w.d.waiters.deliver(id, answer{grant: driver.Grant{Token: token, Asked: asked}})
	}
	w.d.lose(f)
}

// peek tells, without waiting for those who write, whether there is anything to do.
func (w *watcher) peek(ctx context.Context) bool {
	f, err := ask(ctx, w.d.s, w.d.closing, reads, func(t *tx) (f findings, err error) {
		f.soonest = time.Duration(t.soonest - t.now)
		_, err = t.row([]any{&f.pending}, sqlPending, w.d.process)
		return f, err
	})
	w.expect(f.soonest)
	return f.pending || f.soonest <= 0 || err != nil
}

// expect notes when something expires next.
func (w *watcher) expect(d time.Duration) { w.soonest = time.Now().Add(d) }

// findings are what an access of the background task has found.
type findings struct {
	soonest time.Duration     // until the next lease or process expires
	pending bool              // there is something to claim, or to hear of
	grants  map[string]uint64 // by ID
	gone    []string          // IDs of waiting tickets that are not in the queue
	broken  []driver.Hold
}

// look claims what is grantable and hears of what was broken.
func (t *tx) look(d *Driver, heartbeatDue, unsure bool) (f findings, err error) {
	if heartbeatDue {
		if _, err := t.keepAlive(d); err != nil {
			return f, err
		}
	}
	f.soonest, f.grants = time.Duration(t.soonest-t.now), make(map[string]uint64)
	if err := t.claim(d, f.grants); err != nil {
		return f, err
	}
	if f.broken, err = t.losses(d); err != nil {
		return f, err
	}
	if unsure {
		err = t.lookAgain(d, &f)
	}
	return f, err
}

// claim makes holders of those whose turn has come.
func (t *tx) claim(d *Driver, grants map[string]uint64) error {
	err := t.rows(func(scan func(...any) error) (bool, error) {
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

// losses are the tickets of the process that others have removed.
func (t *tx) losses(d *Driver) (broken []driver.Hold, err error) {
	err = t.rows(func(scan func(...any) error) (bool, error) {
		var h driver.Hold
		var name []byte
		err := scan(&h.Token, &name, &h.ID, &h.Shared)
		h.Name = string(name)
		broken = append(broken, h)
		return true, err
	}, sqlLosses, d.process)
	if err == nil && len(broken) > 0 {
		err = t.exec(sqlHeard, d.process)
	}
	return broken, err
}

// lookAgain looks at every ticket of the process that waits, as far as the process
// knows: it may have been granted, or have gone, without an answer.
func (t *tx) lookAgain(d *Driver, f *findings) error {
	for id, name := range d.waiters.queued() {
		var h driver.Hold
		var process, state string
		var ttl int64
		found, err := t.row([]any{&h.Token, &h.ID, &process, &h.Shared, &state, &ttl}, sqlFind, []byte(name), id)
		switch {
		case err != nil:
			return err
		case !found:
			f.gone = append(f.gone, id)
		case state == "held":
			if err := t.exec(sqlExtend, t.now+ttl, []byte(name), id); err != nil {
				return err
			}
			f.grants[id] = h.Token
		}
	}
	return nil
}

// lose tells of tickets that are gone.
func (d *Driver) lose(f findings) {
	for _, id := range f.gone {
		d.waiters.deliver(id, answer{err: driver.ErrLost})
	}
	for _, h := range f.broken {
		d.waiters.deliver(h.ID, answer{err: errBroken})
		if d.tell != nil {
			d.tell(h, errBroken)
		}
	}
}
