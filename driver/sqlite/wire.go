package sqlite

import (
	"cmp"
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
	applicationID = 0x6c6f636b // "lock", in the header of the file
	schemaVersion = 1
)

// Statements about the file.
const (
	sqlFirstBoot = `INSERT INTO store (one, version, boot) VALUES (1, ?, ?)`
	sqlBoot      = `UPDATE store SET boot = ?`

	// A loss of power may have taken the last commits, and tokens with them: continue beyond those.
	sqlReboot = `DELETE FROM tickets; DELETE FROM processes; DELETE FROM losses;
		UPDATE sqlite_sequence SET seq = seq + (1 << 32) WHERE name = 'tickets'`

	sqlCheck = `SELECT version, boot, min(
			coalesce((SELECT min(expires) FROM tickets WHERE expires IS NOT NULL), ?1),
			coalesce((SELECT min(expires) FROM processes), ?1),
			coalesce((SELECT min(expires) FROM losses), ?1))
		FROM store`

	sqlPing = `UPDATE store SET one = 1`
)

// Statements about tickets. RETURNING makes a temporary table, so only statements that run rarely have it.
const (
	sqlInsert = `INSERT INTO tickets (name, id, process, owner, note, shared, permits, ttl, state, since, expires)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING`
	sqlFind      = `SELECT token, id, process, shared, state = 'held', ttl FROM tickets WHERE name = ? AND id = ?`
	sqlFindToken = `SELECT token, id, process, shared, state = 'held', ttl FROM tickets WHERE name = ? AND token = ?`
	sqlHold      = `UPDATE tickets SET state = 'held', since = ?, expires = ? + ttl WHERE token = ? AND state <> 'held'`
	sqlExtend    = `UPDATE tickets SET expires = max(expires, ?) WHERE name = ? AND id = ? AND state = 'held'`
	sqlShorten   = `UPDATE tickets SET expires = min(expires, ?) WHERE name = ? AND id = ? AND state = 'held'`
	sqlDelete    = `DELETE FROM tickets WHERE token = ?`

	sqlReapHeld    = `DELETE FROM tickets WHERE expires <= ? RETURNING name`
	sqlReapWaiting = `DELETE FROM tickets WHERE state <> 'held'
		AND process IN (SELECT id FROM processes WHERE expires <= ?) RETURNING name`
	sqlReapProcesses = `DELETE FROM processes WHERE expires <= ?`
	sqlReapLosses    = `DELETE FROM losses WHERE expires <= ?`
)

// Statements about the queue of a name.
const (
	// The grant rule needs no more tickets than the greatest limit of a shared one.
	sqlHead = `SELECT token, id, shared, permits, state = 'held' FROM tickets WHERE name = ?1 ORDER BY token
		LIMIT max(?2, coalesce((SELECT max(permits) FROM tickets WHERE name = ?1 AND shared), 1))`
	sqlMarkGrantable = `UPDATE tickets SET state = 'grantable' WHERE token = ? AND state = 'waiting' RETURNING process`

	// Tickets that have expired and are not reaped yet are not shown.
	live = ` coalesce(t.expires, (SELECT p.expires FROM processes p WHERE p.id = t.process)) > ?`

	sqlInspect = `SELECT token, id, owner, note, shared, permits, since, expires FROM tickets t
		WHERE name = ? AND` + live + ` ORDER BY token`
	sqlList = `SELECT DISTINCT name FROM tickets t WHERE` + live
)

// Statements about a process that waits.
const (
	sqlHeartbeat    = `UPDATE processes SET expires = ? WHERE id = ?`
	sqlRegister     = `INSERT INTO processes (id, expires) VALUES (?, ?)`
	sqlGrantable    = `SELECT token, id FROM tickets WHERE process = ? AND state = 'grantable'`
	sqlRecordLoss   = `INSERT INTO losses (token, process, name, id, shared, expires) VALUES (?, ?, ?, ?, ?, ?)`
	sqlLosses       = `SELECT token, name, id, shared FROM losses WHERE process = ?`
	sqlRemoveLosses = `DELETE FROM losses WHERE process = ?`
)

// begin is the beginning of every transaction. One that writes removes everything that has expired, so that all
// rows it finds afterwards are alive.
func (t *tx) begin(m mode) error {
	if err := t.s.checkReplaced(); err != nil {
		return err
	}
	t.now = clock()
	if err := t.check(); err != nil {
		return err
	}
	if m.mayChange() && t.soonest <= t.now {
		return t.reap()
	}
	return nil
}

// check fails if the tables are of another version or another boot.
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

// reap removes leases that are over, and the waiting tickets of processes that have sent no heartbeat. It
// removes those processes too: their later heartbeats must fail.
func (t *tx) reap() error {
	held, err1 := t.names(sqlReapHeld, t.now)
	waiting, err2 := t.names(sqlReapWaiting, t.now)
	if err := cmp.Or(err1, err2, t.exec(sqlReapProcesses, t.now), t.exec(sqlReapLosses, t.now)); err != nil {
		return err
	}
	return t.settleAll(append(held, waiting...))
}

// names reads a column of names (of locks, or of processes), each once.
func (t *tx) names(query string, args ...any) ([]string, error) {
	var names []string
	err := t.rows(func(scan scanner) (bool, error) {
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
		if err := t.settle(name); err != nil {
			return err
		}
	}
	return nil
}

// settle marks the tickets that have become grantable, and notifies their processes. Tickets ahead of a ticket
// can only go away, so a mark stays true. Every removal of tickets ends with settle.
func (t *tx) settle(name string) error {
	q, err := t.head(name, 1)
	if err != nil {
		return err
	}
	for i, granted := range driver.Granted(q) {
		if granted && !q[i].Held {
			processes, err := t.names(sqlMarkGrantable, q[i].Token)
			if err != nil {
				return err
			}
			t.notified = append(t.notified, processes...)
		}
	}
	return nil
}

// head returns the queue of name up to the first exclusive ticket, but no more tickets than the greatest limit,
// or permits.
func (t *tx) head(name string, permits int64) (q []driver.Ticket, err error) {
	err = t.rows(func(scan scanner) (bool, error) {
		var v driver.Ticket
		var permits int64
		err := scan(&v.Token, &v.ID, &v.Shared, &permits, &v.Held)
		v.Limit = limitOf(permits)
		q = append(q, v)
		return v.Shared, err
	}, sqlHead, []byte(name), permits)
	return q, err
}

// acquire returns the token of a ticket that is granted, and 0 for one that must wait.
func (t *tx) acquire(d *Driver, r driver.Request, w *waiter) (uint64, error) {
	q, err := t.head(r.Name, permitsOf(r))
	if err != nil {
		return 0, err
	}
	i := slices.IndexFunc(q, func(o driver.Ticket) bool { return o.ID == r.ID })
	if i >= 0 && driver.Grantable(q, i) { // a repeated request, whose answer was lost
		token := q[i].Token
		return token, cmp.Or(t.exec(sqlHold, t.now, t.now, token), t.exec(sqlExtend, t.after(r.TTL), []byte(r.Name), r.ID))
	}
	if i < 0 && driver.Grantable(append(q, r.Ticket(0)), len(q)) {
		return t.insert(d.process, r, "held", t.after(r.TTL))
	}
	if !r.Wait {
		return 0, driver.ErrNotAcquired // nothing was written (D6)
	}
	if _, err := t.insert(d.process, r, "waiting", nil); err != nil {
		return 0, err
	}
	return 0, t.wait(d, r.ID, w)
}

// insert adds a ticket at the tail and returns its token. A ticket that is already there, because the request
// is repeated, stays as it is.
func (t *tx) insert(process string, r driver.Request, state string, expires any) (uint64, error) {
	n, token, err := t.count(sqlInsert, []byte(r.Name), r.ID, process, []byte(r.Owner), []byte(r.Note),
		r.Shared, permitsOf(r), bounded(r.TTL), state, t.now, expires)
	if err == nil && n == 0 && state == "held" {
		err = errors.New("the ticket's ID is in use for another name")
	}
	return uint64(token), err //nolint:gosec // AUTOINCREMENT begins at 1
}

// ticket has what Release and Break need from a row.
type ticket struct {
	driver.Hold
	process string
	held    bool
	ttl     int64
}

// find returns the ticket of name that a query finds, if it is there.
func (t *tx) find(name, query string, key any) (tk ticket, found bool, err error) {
	tk.Name = name
	found, err = t.row([]any{&tk.Token, &tk.ID, &tk.process, &tk.Shared, &tk.held, &tk.ttl}, query, []byte(name), key)
	return tk, found, err
}

// recordLoss records the loss of a ticket, and notifies its process.
func (t *tx) recordLoss(tk ticket) error {
	t.notified = append(t.notified, tk.process)
	return t.exec(sqlRecordLoss, tk.Token, tk.process, []byte(tk.Name), tk.ID, tk.Shared, t.after(lossKept))
}

// show returns the queue of name as Inspect does.
func (t *tx) show(name string) (tickets []driver.Ticket, err error) {
	wall := time.Now().Round(0)
	err = t.rows(func(scan scanner) (bool, error) {
		var v driver.Ticket
		var owner, note []byte
		var permits, since int64
		var expires *int64
		err := scan(&v.Token, &v.ID, &owner, &note, &v.Shared, &permits, &since, &expires)
		v.Owner, v.Note, v.Since = string(owner), string(note), wall.Add(time.Duration(since-t.now))
		if v.Shared {
			v.Limit = limitOf(permits)
		}
		if expires != nil {
			v.Held, v.Remaining = true, time.Duration(*expires-t.now)
		}
		tickets = append(tickets, v)
		return true, err
	}, sqlInspect, []byte(name), t.now)
	return tickets, err
}

// permitsOf and limitOf convert a limit to and from its column.
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

// after returns the time d from now.
func (t *tx) after(d time.Duration) int64 { return t.now + bounded(d) }

// bounded returns d in nanoseconds, or less if the clock could not be added to it.
func bounded(d time.Duration) int64 { return min(int64(d), math.MaxInt64/2) }
