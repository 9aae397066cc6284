package sqlite

import (
	_ "embed"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
)

//go:embed schema.sql
var schema string

const (
	applicationID = 0x6c6f636b // "lock", in the head of the file
	schemaVersion = 1
)

// The life of the file.
const (
	sqlFirstBoot       = `INSERT INTO store (one, version, boot) VALUES (1, ?, ?)`
	sqlBoot            = `UPDATE store SET boot = ?`
	sqlForgetTickets   = `DELETE FROM tickets`
	sqlForgetProcesses = `DELETE FROM processes`
	sqlForgetLosses    = `DELETE FROM losses`

	// A loss of power may have taken the last commits, and tokens with them (see
	// openStore): begin again beyond them.
	sqlSkipTokens = `UPDATE sqlite_sequence SET seq = seq + (1 << 32) WHERE name = 'tickets'`

	sqlCheck = `SELECT version, boot, min(
			coalesce((SELECT min(expires) FROM tickets WHERE expires IS NOT NULL), ?1),
			coalesce((SELECT min(expires) FROM processes), ?1),
			coalesce((SELECT min(expires) FROM losses), ?1))
		FROM store`

	sqlPing = `UPDATE store SET one = 1`
)

// Tickets that come and go.
const (
	sqlInsert = `INSERT INTO tickets (name, id, process, owner, note, shared, permits, ttl, state, since)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'waiting', ?) ON CONFLICT (id) DO NOTHING RETURNING token`
	sqlFind        = `SELECT token, state FROM tickets WHERE id = ? AND name = ?`
	sqlHold        = `UPDATE tickets SET state = 'held', ttl = ?, since = ?, expires = ? WHERE token = ?`
	sqlState       = `SELECT token, state, ttl FROM tickets WHERE id = ?`
	sqlExtend      = `UPDATE tickets SET expires = max(expires, ?) WHERE id = ? AND name = ? AND state = 'held'`
	sqlExtendToken = `UPDATE tickets SET expires = max(expires, ?) WHERE token = ?`
	sqlRelease     = `DELETE FROM tickets WHERE id = ? AND name = ? RETURNING token, id, process, shared, state`
	sqlBreak       = `DELETE FROM tickets WHERE token = ? AND name = ? RETURNING token, id, process, shared, state`

	sqlReapHeld    = `DELETE FROM tickets WHERE expires <= ? RETURNING name`
	sqlReapWaiting = `DELETE FROM tickets WHERE state <> 'held'
		AND process IN (SELECT id FROM processes WHERE expires <= ?) RETURNING name`
	sqlReapProcesses = `DELETE FROM processes WHERE expires <= ?`
	sqlReapLosses    = `DELETE FROM losses WHERE expires <= ?`
)

// The queue of a name.
const (
	sqlMost = `SELECT max(permits) FROM tickets WHERE name = ? AND shared`
	sqlHead = `SELECT token, process, shared, permits, state FROM tickets WHERE name = ? ORDER BY token LIMIT ?`
	sqlNext = `UPDATE tickets SET state = 'grantable' WHERE token = ?`

	// What is over but not yet reaped is not shown.
	live = ` coalesce(t.expires, (SELECT p.expires FROM processes p WHERE p.id = t.process)) > ?`

	sqlInspect = `SELECT token, id, owner, note, shared, permits, state, since, expires FROM tickets t
		WHERE name = ? AND` + live + ` ORDER BY token`
	sqlList = `SELECT DISTINCT name FROM tickets t WHERE` + live
)

// What a process that waits does.
const (
	sqlHeartbeat = `UPDATE processes SET expires = ? WHERE id = ?`
	sqlRegister  = `INSERT INTO processes (id, expires) VALUES (?, ?)`
	sqlPending   = `SELECT EXISTS (SELECT 1 FROM tickets WHERE process = ?1 AND state = 'grantable')
		OR EXISTS (SELECT 1 FROM losses WHERE process = ?1)`
	sqlClaim = `UPDATE tickets SET state = 'held', since = ?, expires = ? + ttl
		WHERE process = ? AND state = 'grantable' RETURNING id, token`
	sqlLost   = `INSERT INTO losses (token, process, name, id, shared, expires) VALUES (?, ?, ?, ?, ?, ?)`
	sqlLosses = `DELETE FROM losses WHERE process = ? RETURNING token, name, id, shared`

	sqlLeaveTickets = `DELETE FROM tickets WHERE process = ? AND state <> 'held' RETURNING name`
	sqlLeave        = `DELETE FROM processes WHERE id = ?`
)

// check fails when the tables are not for this program, or not of this boot.
func (t *tx) check() error {
	var version int64
	var boot string
	_, err := t.row([]any{&version, &boot, &t.soonest}, sqlCheck, int64(math.MaxInt64))
	switch {
	case err != nil:
		return err
	case version != schemaVersion:
		return fmt.Errorf("%w: %d, and this program knows version %d: use one version of locker for all programs",
			errOtherVersion, version, schemaVersion)
	case boot != t.s.boot:
		return errOtherBoot
	}
	return nil
}

// begin is the begin of every access. One that writes removes all that is over first, so
// that what it finds afterwards is alive.
func (t *tx) begin(k kind) error {
	if err := t.s.same(); err != nil {
		return err
	}
	t.now = clock()
	if err := t.check(); err != nil {
		return err
	}
	if k == writes && t.soonest <= t.now {
		return t.reap()
	}
	return nil
}

// reap removes what is over: leases, and the waiting tickets of processes that
// are silent. A process goes together with them: it must not come back without them.
func (t *tx) reap() error {
	held, err := t.names(sqlReapHeld, t.now)
	if err != nil {
		return err
	}
	waiting, err := t.names(sqlReapWaiting, t.now)
	if err != nil {
		return err
	}
	if err := errors.Join(t.exec(sqlReapProcesses, t.now), t.exec(sqlReapLosses, t.now)); err != nil {
		return err
	}
	return t.settleAll(append(held, waiting...))
}

// names reads names, each once.
func (t *tx) names(query string, args ...any) ([]string, error) {
	var names []string
	err := t.rows(func(scan func(...any) error) (bool, error) {
		var name []byte
		err := scan(&name)
		names = append(names, string(name))
		return true, err
	}, query, args...)
	slices.Sort(names)
	return slices.Compact(names), err
}

func (t *tx) settleAll(names []string) error {
	for _, name := range names {
		if err := t.settle([]byte(name)); err != nil {
			return err
		}
	}
	return nil
}

// entry is a ticket as the grant rule sees it.
type entry struct {
	driver.Ticket
	process, state string
}

// head returns the queue of name as far as the grant rule looks: to the first
// exclusive ticket, and no further than the greatest limit of a shared one.
func (t *tx) head(name []byte) (queue []driver.Ticket, entries []entry, err error) {
	var most *int64
	if _, err = t.row([]any{&most}, sqlMost, name); err != nil {
		return nil, nil, err
	}
	limit := int64(1)
	if most != nil {
		limit = *most
	}
	err = t.rows(func(scan func(...any) error) (bool, error) {
		var e entry
		var permits int64
		err := scan(&e.Token, &e.process, &e.Shared, &permits, &e.state)
		e.Limit = limitOf(permits)
		queue, entries = append(queue, e.Ticket), append(entries, e)
		return e.Shared, err
	}, sqlHead, name, limit)
	return queue, entries, err
}

// settle marks the tickets whose turn has come, and notifies their processes. What is
// ahead of a ticket only ever goes away, so the mark stays true. Every removal ends with it.
func (t *tx) settle(name []byte) error {
	queue, entries, err := t.head(name)
	if err != nil {
		return err
	}
	for i, granted := range driver.Granted(queue) {
		if granted && entries[i].state == "waiting" {
			if err := t.exec(sqlNext, queue[i].Token); err != nil {
				return err
			}
			t.notified = append(t.notified, entries[i].process)
		}
	}
	return nil
}

// permitsOf and limitOf write and read how many shared tickets there may be at once.
func permitsOf(r driver.Request) int64 {
	if r.Limit == 0 {
		return math.MaxInt64
	}
	return int64(r.Limit)
}

func limitOf(permits int64) int {
	if permits == math.MaxInt64 {
		return 0
	}
	return int(permits)
}

// after is the time d from now.
func (t *tx) after(d time.Duration) int64 { return t.now + bounded(d) }

// bounded is d in nanoseconds, so few that they can be added to the clock.
func bounded(d time.Duration) int64 { return min(int64(d), math.MaxInt64/2) }
