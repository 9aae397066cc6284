package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// The database has one row for a process that waits, which heartbeats renew. The ID of the process is a random number.
// It changes when the row has been removed or has expired: an expired row is never renewed, so its tickets stay
// expired. The IDs of one driver differ in the low bits only, and share a notification channel.
const processIDs = 1 << 16

// current returns the present ID.
func (ws *waiters) current() int64 {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.process
}

// nextID changes the ID. With mu held.
func (ws *waiters) nextID() {
	ws.process = ws.process&^(processIDs-1) | (ws.process+1)&(processIDs-1)
	ws.registered = false
	ws.heartbeats = [8]heartbeat{}
}

// acknowledged records a heartbeat that the database has answered.
func (ws *waiters) acknowledged(process, number int64, sent time.Time) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.process != process {
		return
	}
	ws.answered = time.Now()
	if !ws.registered {
		ws.registered, ws.waited = true, ws.answered
	}
	ws.heartbeats[number%int64(len(ws.heartbeats))] = heartbeat{number, sent}
	if ws.fault != nil {
		ws.fault, ws.missed = nil, true
	}
}

// setFault records why a heartbeat failed.
func (ws *waiters) setFault(err error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.fault = err
}

func (ws *waiters) lastFault() error {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.fault
}

// expired ends the waits of a process that the database reports as expired.
func (ws *waiters) expired(process int64) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.process != process {
		return
	}
	ws.nextID()
	for _, w := range ws.byID {
		if w.process == process && !w.queued.IsZero() {
			ws.end(w, outcome{err: driver.ErrLost})
		}
	}
}

// leave gives up the present ID. It reports whether the database has a row of it.
func (ws *waiters) leave() (process int64, known bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	process, known = ws.process, ws.registered
	ws.nextID()
	return process, known
}

// leave removes the row of the process. If the database does not answer, the row expires.
func (d *Driver) leave(ctx context.Context, process int64) {
	_, _ = query(ctx, d, sending{patient: true}, pgx.RowTo[int], d.w.leave, process)
}

// heartbeatEvery is the time between two heartbeats.
func (d *Driver) heartbeatEvery() time.Duration { return d.opts.liveness / 4 }

// heartbeat shows that a process lives; alive is false if it has expired. It returns the tickets that were granted to
// the process and not renewed since.
func (d *Driver) heartbeat(ctx context.Context, process int64, register bool) (alive bool, granted []ticketRow, err error) {
	var number int64
	var sent time.Time
	rows, err := query(ctx, d, sending{sent: &sent}, rowTicket(&number), d.w.heartbeat, process, sqlqueue.Micros(d.opts.liveness), register)
	if err == nil && number > 0 {
		d.waiters.acknowledged(process, number, sent)
	}
	return number > 0, present(rows), err
}

// register registers the process in the database, because it was not registered, under the ID then, according to the
// answer to a request that was sent at asked. Another request may have registered it meanwhile.
func (d *Driver) register(ctx context.Context, then int64, asked time.Time) error {
	if err := d.lock(ctx, d.registering); err != nil {
		return err
	}
	defer func() { <-d.registering }()
	d.waiters.mu.Lock()
	process, registered, answered := d.waiters.process, d.waiters.registered, d.waiters.answered
	d.waiters.mu.Unlock()
	if registered && (process != then || answered.After(asked)) {
		return nil
	}
	if registered {
		d.waiters.expired(process)
	}
	_, err := repeat(ctx, d, true, func() (struct{}, error) {
		process := d.waiters.current()
		alive, _, err := d.heartbeat(ctx, process, true)
		if err == nil && !alive { // an earlier try has registered it, and it has expired; others may have queued
			d.waiters.expired(process)
			_, _, err = d.heartbeat(ctx, d.waiters.current(), true)
		}
		return struct{}{}, err
	})
	if err == nil {
		d.attend()
	}
	return err
}

// rowTicket reads a number, and the ticket beside it. The ticket's ID is empty if there is none.
func rowTicket(number *int64) pgx.RowToFunc[ticketRow] {
	return func(row pgx.CollectableRow) (t ticketRow, err error) {
		var (
			id          *string
			name        []byte
			token, left *int64
			held        *bool
		)
		if err := row.Scan(number, &id, &name, &token, &held, &left); err != nil || id == nil {
			return t, err
		}
		t = ticketRow{id: *id, name: string(name), token: uint64(*token), held: *held} //nolint:gosec // the schema has them positive
		if left != nil {
			t.left = time.Duration(*left) * time.Microsecond
		}
		return t, nil
	}
}

// present returns the rows that have a ticket.
func present(rows []ticketRow) []ticketRow {
	if len(rows) > 0 && rows[0].id == "" {
		return nil
	}
	return rows
}
