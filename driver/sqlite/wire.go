package sqlite

import (
	"cmp"
	_ "embed"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

//go:embed schema.sql
var schema string

const (
	applicationID = 0x6c6f636b // "lock", in the header of the file
	schemaVersion = 2
)

// Statements about the file.
const (
	// A transaction writes each page that it changes, and rows are short: small pages make a cycle cheaper by a fifth. A page
	// size takes effect only in a database that is empty. The log has 4000 pages, 4 MB (16 MB in a file with the pages of older
	// versions), before it is written back into the database: only that flushes the disk.
	//
	// With a write-ahead log, sqlNormal keeps the database whole in any case. A loss of power may take the last commits, for
	// which sqlReboot skips tokens. It must not take that itself, so the boot is committed before sqlNormal.
	sqlSettings = `PRAGMA page_size = 1024; PRAGMA wal_autocheckpoint = 4000; PRAGMA synchronous = FULL`
	sqlNormal   = `PRAGMA synchronous = NORMAL`

	sqlFirstBoot = `INSERT INTO store (one, version, boot) VALUES (1, ?, ?)`
	sqlBoot      = `UPDATE store SET boot = ?`

	// A loss of power may have taken the last commits, and tokens with them, or all of them: continue beyond those.
	sqlReboot = `DELETE FROM tickets; DELETE FROM processes;
		INSERT INTO sqlite_sequence SELECT 'tickets', 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = 'tickets');
		UPDATE sqlite_sequence SET seq = seq + (1 << 32) WHERE name = 'tickets'`

	sqlStore   = `SELECT version, boot FROM store`
	sqlSoonest = `SELECT min(coalesce((SELECT min(expires) FROM tickets WHERE expires IS NOT NULL), ?1),
			coalesce((SELECT min(expires) FROM processes), ?1))`

	sqlPing = `UPDATE store SET one = 1`
)

// Statements about tickets. RETURNING makes a temporary table, so only statements that run rarely have it.
const (
	ticketsOf = `tickets (name, slot, id, process, owner, note, shared, permits, ttl, state, since, expires) `
	sqlInsert = `INSERT INTO ` + ticketsOf + `VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`

	// These two are whole transactions: of a name that nobody uses, and of a ticket that is alone. The first inserts nothing
	// where the name would be NULL. As INSERT ... SELECT it would make a temporary table.
	sqlTakeFree = `INSERT OR IGNORE INTO ` + ticketsOf + `VALUES (
		(SELECT ?1 FROM store WHERE version = ?13 AND boot = ?14 AND NOT EXISTS (SELECT 1 FROM tickets WHERE name = ?1)),
		?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)`
	sqlRemoveAlone = `DELETE FROM tickets WHERE name = ?1 AND slot = 0 AND id = ?2 AND expires > ?3
		AND NOT EXISTS (SELECT 1 FROM tickets WHERE name = ?1 AND slot IS NULL)
		AND EXISTS (SELECT 1 FROM store WHERE version = ?4 AND boot = ?5)`

	sqlHold    = `UPDATE tickets SET state = 'provisional', slot = ?, since = ?, expires = ? WHERE token = ?`
	sqlRenew   = `UPDATE tickets SET state = 'held', expires = max(expires, ?) WHERE token = ?`
	sqlShorten = `UPDATE tickets SET expires = min(expires, ?) WHERE token = ?`
	sqlDelete  = `DELETE FROM tickets WHERE token = ?`

	columns = `SELECT t.token, t.id, t.process, t.shared, t.permits, t.ttl, t.state, t.expires, p.heartbeat, p.expires
		FROM tickets t LEFT JOIN processes p ON p.id = t.process AND t.state = 'waiting' `

	sqlHolder    = columns + `WHERE t.name = ? AND t.slot = 0`
	sqlFind      = columns + `WHERE t.id = ? AND t.slot IS NULL AND t.name = ?`
	sqlFindToken = columns + `WHERE t.token = ? AND t.name = ?`

	// The tickets without a slot, which follow the exclusive holder, or are all there are. The grant rule needs no more than
	// the greatest limit of a shared one.
	sqlHead = columns + `WHERE t.name = ?1 AND t.slot IS NULL ORDER BY t.token
		LIMIT max(?2, coalesce((SELECT max(permits) FROM tickets WHERE name = ?1 AND shared), 1))`
	sqlFirst = `SELECT process FROM tickets WHERE name = ? AND state = 'waiting' AND slot IS NULL ORDER BY token LIMIT 1`

	// Tickets that have expired and are not reaped yet are not shown.
	live = ` coalesce(t.expires, (SELECT p.expires FROM processes p WHERE p.id = t.process)) > ?`

	sqlInspect = `SELECT token, id, owner, note, shared, permits, since, expires FROM tickets t
		WHERE name = ? AND` + live + ` ORDER BY token`
	sqlList = `SELECT DISTINCT name FROM tickets t WHERE` + live
)

// Statements about processes that wait, and about what has expired.
const (
	sqlRegister    = `INSERT INTO processes (id, heartbeat, expires) VALUES (?, 1, ?)`
	sqlHeartbeat   = `UPDATE processes SET heartbeat = heartbeat + 1, expires = ? WHERE id = ?`
	sqlProcess     = `SELECT heartbeat FROM processes WHERE id = ?`
	sqlProvisional = `SELECT token, id, state, expires FROM tickets WHERE process = ? AND state <> 'held' AND state = 'provisional'`
	sqlMine        = `SELECT token, id, state, expires FROM tickets WHERE process = ? AND state <> 'held'`

	sqlLeave        = `DELETE FROM processes WHERE id = ?`
	sqlLeaveTickets = `DELETE FROM tickets WHERE process = ? AND state <> 'held' AND state = 'waiting' RETURNING name`

	sqlReapHeld    = `DELETE FROM tickets WHERE expires <= ? RETURNING name`
	sqlReapWaiting = `DELETE FROM tickets WHERE state <> 'held' AND state = 'waiting'
		AND process IN (SELECT id FROM processes WHERE expires <= ?) RETURNING name`
	sqlReapProcesses = `DELETE FROM processes WHERE expires <= ?`
)

// start begins a transaction. One that writes removes everything that has expired, so that all
// rows it finds afterwards are alive.
func (t *tx) start() error {
	if err := t.enter(); err != nil {
		return err
	}
	if err := t.check(); err != nil || !t.mayChange() {
		return err
	}
	var soonest int64
	_, err := t.row([]any{&soonest}, sqlSoonest, int64(math.MaxInt64))
	if err == nil && soonest <= t.now {
		err = t.reap()
	}
	return err
}

// check fails if the tables are of another version or another boot.
func (t *tx) check() error {
	var version int64
	var boot string
	_, err := t.row([]any{&version, &boot}, sqlStore)
	switch {
	case err != nil:
		return err
	case version != schemaVersion:
		return fmt.Errorf("the file has a schema of another version of locker: %d, and this program knows version %d: "+
			"use one version of locker for all programs", version, schemaVersion)
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
	return cmp.Or(err1, err2, t.exec(sqlReapProcesses, t.now), t.settle(append(held, waiting...)...))
}

// names reads a column of names, each once.
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

// A ticket has what a decision needs of a row.
type ticket struct {
	driver.Ticket
	process   int64
	ttl       int64
	heartbeat int64 // of the process of one that waits
	expires   int64 // its lease or, of one that waits, its process; 0: there is none
}

func scanTicket(scan scanner) (tk ticket, err error) {
	var permits int64
	var state string
	var expires, heartbeat, alive *int64
	err = scan(&tk.Token, &tk.ID, &tk.process, &tk.Shared, &permits, &tk.ttl, &state, &expires, &heartbeat, &alive)
	tk.Limit, tk.Held = sqlqueue.Limit(permits), state != "waiting"
	if expires = cmp.Or(expires, alive); expires != nil {
		tk.expires = *expires
	}
	if heartbeat != nil {
		tk.heartbeat = *heartbeat
	}
	return tk, err
}

// find returns the ticket that a query finds, if it is there.
func (t *tx) find(query string, args ...any) (tk ticket, found bool, err error) {
	err = t.rows(func(scan scanner) (_ bool, err error) {
		found = true
		tk, err = scanTicket(scan)
		return false, err
	}, query, args...)
	return tk, found, err
}

// findID returns the ticket of a name by its ID.
func (t *tx) findID(name, id string) (tk ticket, found bool, err error) {
	if tk, found, err = t.find(sqlHolder, []byte(name)); err != nil || found && tk.ID == id {
		return tk, found, err
	}
	return t.find(sqlFind, id, []byte(name))
}

// holds reports whether a ticket is held.
func (t *tx) holds(h driver.Hold) (bool, error) {
	tk, found, err := t.findID(h.Name, h.ID)
	return err == nil && found && tk.Held && tk.Token == h.Token, err
}

// head returns the queue of name up to the first exclusive ticket, but no more tickets than the greatest limit,
// or permits.
func (t *tx) head(name string, permits int64) (q []ticket, err error) {
	add := func(scan scanner) (bool, error) {
		tk, err := scanTicket(scan)
		q = append(q, tk)
		return tk.Shared, err
	}
	if err := t.rows(add, sqlHolder, []byte(name)); err != nil || len(q) > 0 {
		return q, err
	}
	return q, t.rows(add, sqlHead, []byte(name), permits)
}

// settle grants the tickets of queues that have become grantable. Every removal of tickets ends with it.
func (t *tx) settle(names ...string) error {
	for _, name := range names {
		q, err := t.head(name, 1)
		if err != nil {
			return err
		}
		for i, granted := range driver.Granted(shownAs(q)) {
			if granted && !q[i].Held {
				if err := t.grant(q[i]); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func shownAs(q []ticket) []driver.Ticket {
	shown := make([]driver.Ticket, len(q))
	for i, tk := range q {
		shown[i] = tk.Ticket
	}
	return shown
}

// grant makes a waiting ticket a holder, with a provisional lease.
func (t *tx) grant(tk ticket) error {
	g := sqlqueue.Grant{ID: tk.ID, Token: tk.Token, Heartbeat: tk.heartbeat}
	if tk.process == t.process {
		t.grants = append(t.grants, g)
	} else {
		t.notify(tk.process, sqlqueue.GrantText(g))
	}
	return t.exec(sqlHold, slotOf(tk.Shared), t.now, min(t.now+min(tk.ttl, mostTime), tk.expires), tk.Token)
}

// notify notifies a process after the commit.
func (t *tx) notify(process int64, text string) { t.notices = append(t.notices, notice{process, text}) }

// due returns when the first of some tickets expires: in -1 if one has.
func (t *tx) due(q []ticket) time.Duration {
	in := time.Hour
	for _, tk := range q {
		in = min(in, time.Duration(max(tk.expires, 0)-t.now))
	}
	if in <= 0 {
		return -1
	}
	return in
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
		v.Owner, v.Note, v.Limit = string(owner), string(note), sqlqueue.Limit(permits)
		v.Since = wall.Add(time.Duration(since - t.now))
		if expires != nil {
			v.Held, v.Remaining = true, time.Duration(*expires-t.now)
		}
		tickets = append(tickets, v)
		return true, err
	}, sqlInspect, []byte(name), t.now)
	return tickets, err
}

// slotOf returns the slot of a ticket that is held.
func slotOf(shared bool) any {
	if shared {
		return nil
	}
	return 0
}

// mostTime can be added to the clock.
const mostTime = math.MaxInt64 / 2

// after returns the time d from now.
func (t *tx) after(d time.Duration) int64 { return t.now + bounded(d) }

// bounded returns d in nanoseconds, or less if the clock could not be added to it.
func bounded(d time.Duration) int64 { return min(int64(d), mostTime) }
