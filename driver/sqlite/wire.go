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

// Tickets that come and go. RETURNING, which makes a temporary table, is only where it
// is rarely needed.
const (
	sqlInsert = `INSERT INTO tickets (name, id, process, owner, note, shared, permits, ttl, state, since, expires)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`
	sqlFind      = `SELECT token, id, process, shared, state, ttl FROM tickets WHERE name = ? AND id = ?`
	sqlFindToken = `SELECT token, id, process, shared, state, ttl FROM tickets WHERE name = ? AND token = ?`
	sqlHold      = `UPDATE tickets SET state = 'held', since = ?, expires = ? + ttl WHERE token = ? AND state <> 'held'`
	sqlExtend    = `UPDATE tickets SET expires = max(expires, ?) WHERE name = ? AND id = ? AND state = 'held'`
	sqlDelete    = `DELETE FROM tickets WHERE token = ?`

	sqlReapHeld    = `DELETE FROM tickets WHERE expires <= ? RETURNING name`
	sqlReapWaiting = `DELETE FROM tickets WHERE state <> 'held'
		AND process IN (SELECT id FROM processes WHERE expires <= ?) RETURNING name`
	sqlReapProcesses = `DELETE FROM processes WHERE expires <= ?`
	sqlReapLosses    = `DELETE FROM losses WHERE expires <= ?`
)

// The queue of a name.
const (
	// As far as the grant rule looks, at most: to the greatest limit of a shared ticket.
	sqlHead = `SELECT token, id, process, shared, permits, state FROM tickets WHERE name = ?1 ORDER BY token
		LIMIT max(?2, coalesce((SELECT max(permits) FROM tickets WHERE name = ?1 AND shared), 1))`
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
	sqlGrantable = `SELECT token, id FROM tickets WHERE process = ? AND state = 'grantable'`
	sqlLost      = `INSERT INTO losses (token, process, name, id, shared, expires) VALUES (?, ?, ?, ?, ?, ?)`
	sqlLosses    = `SELECT token, name, id, shared FROM losses WHERE process = ?`
	sqlHeard     = `DELETE FROM losses WHERE process = ?`

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

// head is the begin of a queue: each ticket, and beside it what else its row says.
type head struct {
	tickets []driver.Ticket
	rows    []row
}

// row is what the grant rule does not look at.
type row struct{ process, state string }

// head returns the queue of name as far as the grant rule looks: to the first
// exclusive ticket, and no further than the greatest limit, or permits.
func (t *tx) head(name []byte, permits int64) (q head, err error) {
	err = t.rows(func(scan func(...any) error) (bool, error) {
		var v driver.Ticket
		var r row
		var permits int64
		err := scan(&v.Token, &v.ID, &r.process, &v.Shared, &permits, &r.state)
		v.Limit = limitOf(permits)
		q.tickets, q.rows = append(q.tickets, v), append(q.rows, r)
		return v.Shared, err
	}, sqlHead, name, permits)
	return q, err
}

// settle marks the tickets whose turn has come, and notifies their processes. What is
// ahead of a ticket only ever goes away, so the mark stays true. Every removal ends with it.
func (t *tx) settle(name []byte) error {
	q, err := t.head(name, 1)
	if err != nil {
		return err
	}
	for i, granted := range driver.Granted(q.tickets) {
		if granted && q.rows[i].state == "waiting" {
			if err := t.exec(sqlNext, q.tickets[i].Token); err != nil {
				return err
			}
			t.notified = append(t.notified, q.rows[i].process)
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
