package sim

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log"
	"net"
	"slices"
	"sync"
	"time"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/mysql"
)

// innodb is a model of MySQL, by its protocol (mysql_protocol.go), with the statements of driver/mysql (mysql_ops.go) and its
// procedures (mysql_queue.go). The driver, its client and the pool are the real ones. Committed data survives; a restart, or the
// server that takes over, may give again tokens that nobody has seen committed. A transaction may keep its locks for a while, and
// may be undone, or its statement be ended before or after its commit. The clock runs at a rate of its own.
type innodb struct {
	s        *server
	rnd      *stream
	rate     float64 // of its clock
	ahead    time.Duration
	full     uint16 // what it answers while it is full: the code of an error
	accounts bool   // each process has an account of its own, so none may interrupt the statement of another
	lingers  bool   // connections that have failed may live on at the server

	mu     sync.Mutex
	tables myTables
	locks  map[string]chan struct{} // of slots and anchors
	links  map[int64]*myLink        // by the numbers of connections
	named  map[string]*myLink       // who has which lock of GET_LOCK
	number int64                    // of the last connection
	start  uint64                   // {server}: the server, and when it was started, in seconds
}

func newInnoDB(s *server) *innodb {
	d := &innodb{
		s: s, rnd: newStream(s.w.seed, s.name),
		tables: myTables{tickets: make(map[string]*myTicket), processes: make(map[int64]*myProcess), next: 1},
		locks:  make(map[string]chan struct{}), links: make(map[int64]*myLink), named: make(map[string]*myLink),
	}
	d.ahead = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Sub(s.w.begun) + d.rnd.upTo(48*time.Hour)
	d.rate = 0.9995 + 0.001*float64(d.rnd.n(1000))/1000
	d.full = pick(d.rnd, myDisk, myReadOnly, myCrowded)
	d.accounts, d.lingers = d.rnd.one(3), d.rnd.one(2)
	d.start = 1<<32 | uint64(d.time()/1e6) //nolint:gosec // positive
	return d
}

// late is by how much a grant may be late: until the next heartbeat, if its process has not found out yet that nobody may wake it.
func (d *innodb) late() time.Duration {
	if d.accounts {
		return mysql.DefaultLiveness/4 + 500*time.Millisecond
	}
	return 500 * time.Millisecond
}

// time is the server's clock, in µs.
func (d *innodb) time() int64 {
	begun := d.s.w.begun
	return begun.Add(d.ahead + time.Duration(float64(time.Since(begun))*d.rate)).UnixMicro()
}

// trueTime is when the server's clock has that time, in µs.
func (d *innodb) trueTime(micros int64) time.Time { return trueTime(d.s.w, micros, d.ahead, d.rate) }

// restart loses the connections, and the numbers that were given to no ticket that is there.
func (d *innodb) restart() (loses bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.start = max(d.start+1, 1<<32|uint64(d.time()/1e6)) //nolint:gosec // positive
	if d.rnd.one(2) {
		d.tables.next = 1
		for _, t := range d.tables.tickets {
			d.tables.next = max(d.tables.next, t.seq+1)
		}
	}
	clear(d.links)
	clear(d.named)
	return false
}

func (d *innodb) has(name string, token uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.tables.queue(name), func(t *myTicket) bool { return t.seq == token && t.held && t.expires > d.time() })
}

func (d *innodb) lease(name, id string, _ time.Time) (there bool, until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &myCall{myTables: &d.tables, now: d.time()}
	for _, t := range d.tables.queue(name) {
		if t.id == id {
			there = c.live(t)
			if t.held {
				until = d.trueTime(t.expires)
			}
		}
	}
	return there, until
}

func (d *innodb) leftovers() (all []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for entry, t := range d.tables.tickets {
		all = append(all, fmt.Sprintf("%q: token %d of %x", entry, t.seq, t.process))
	}
	for id := range d.tables.processes {
		all = append(all, fmt.Sprintf("process %x", id))
	}
	slices.Sort(all)
	return all
}

// lock takes a lock of a row, unless canceled is closed before.
func (d *innodb) lock(row string, canceled <-chan struct{}) (unlock func(), ok bool) {
	d.mu.Lock()
	if d.locks[row] == nil {
		d.locks[row] = make(chan struct{}, 1)
	}
	l := d.locks[row]
	d.mu.Unlock()
	select {
	case l <- struct{}{}:
		return func() { <-l }, true
	case <-canceled:
		return nil, false
	}
}

// run runs a statement, which is a transaction.
func (d *innodb) run(l *myLink, op *myOp, v []string, canceled <-chan struct{}) myAnswer {
	_, _, full := d.s.state()
	fails := full.After(time.Now()) && d.full != myCrowded
	readOnly := fails && d.full == myReadOnly
	switch {
	case fails && op.writes:
		return refused(d.full)
	case readOnly && op.primary:
		return refused(myTwoRows)
	case op.sleeps:
		return d.sleep(l, v, readOnly, canceled)
	}
	asked := d.time()
	var rows []string
	if op.slot {
		rows = append(rows, "slot "+v[0])
	}
	if op.anchor {
		rows = append(rows, "anchor "+v[0])
	}
	for _, row := range rows {
		unlock, ok := d.lock(row, canceled)
		if !ok {
			return refused(myInterrupted)
		}
		defer unlock()
	}
	draws, ended := op.anchor && (op.name != "advance_call" || v[3] == "0"), uint16(0) // a sweep is not repeated soon
	switch {
	case draws && d.rnd.one(60):
		return refused(myDeadlock)
	case draws && d.s.w.concernsAll(time.Now()) && d.rnd.one(20): // it is ended: before its commit or, if it is a procedure, after it
		if ended = myTimeout; !op.call || d.rnd.one(2) {
			return refused(ended)
		}
	}
	a, woken := d.call(l, op, v, asked)
	if op.anchor && d.rnd.one(30) { // it commits late
		d.s.w.sleep(d.short())
	}
	if ended != 0 {
		return refused(ended)
	}
	d.wake(l, woken)
	return a
}

func (d *innodb) short() time.Duration { return d.rnd.upTo(30 * time.Millisecond) }

// call executes a statement that has its locks.
func (d *innodb) call(l *myLink, op *myOp, v []string, asked int64) (a myAnswer, woken []int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &myCall{myTables: &d.tables, d: d, l: l, now: d.time(), asked: asked}
	a = op.do(c, v)
	d.s.w.comesBack(d.s, texts(anyOf(v)), func(name, id string, _ time.Time) bool {
		t := c.byID(name, id)
		return t != nil && c.live(t)
	})
	d.s.w.message("%s: %s %q: %v, wakes %x", d.s.name, op.name, v, a, c.woken)
	return a, c.woken
}

func anyOf(texts []string) (all []any) {
	for _, t := range texts {
		all = append(all, t)
	}
	return all
}

// wake is {call_wake}: it interrupts the connections of some processes, which sleep.
func (d *innodb) wake(by *myLink, processes []int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, id := range processes {
		p := d.tables.processes[id]
		if p == nil || d.owner(lockName(p.server, p.connection)) == nil {
			continue
		}
		if code := d.kill(by, p.connection); code == myForbidden && p.connection > 0 {
			p.connection = -1
		}
	}
}

// kill is KILL QUERY. With mu held.
func (d *innodb) kill(by *myLink, connection int64) (code uint16) {
	l := d.links[connection]
	switch {
	case l == nil:
		return myNoThread
	case d.accounts && l.c.p.process != by.c.p.process:
		return myForbidden
	}
	l.runs.cancel()
	return 0
}

// owner returns who has a lock of GET_LOCK. With mu held.
func (d *innodb) owner(name string) *myLink {
	l := d.named[name]
	if l != nil && l.over() {
		delete(d.named, name)
		return nil
	}
	return l
}

func lockName(server uint64, connection int64) string {
	return fmt.Sprintf("locker.%d.%d", server, connection)
}

// myConfig is how all processes reach the server.
func myConfig() *gomysql.Config {
	c := gomysql.NewConfig()
	c.User, c.DBName, c.Net, c.Addr, c.Timeout = "locker", "locker", "sim", "mysql", 5*time.Second
	c.Logger = log.New(io.Discard, "", 0)
	return c
}

// mysqlDriver is deeper in ownedDB than what checks its answers.
type mysqlDriver struct{ *mysql.Driver }

// ownedDB closes its pool, as a driver does that is opened by URL.
type ownedDB struct {
	*contract
	mysqlDriver
	db *sql.DB
}

func (d ownedDB) Close() error {
	err := d.contract.Close()
	go d.db.Close()
	return err
}

func openInnoDB(s *server, process string) (driver.Driver, *path, error) {
	d, p := s.model.(*innodb), newPath(s, process)
	c := myConfig()
	c.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) { return d.dial(ctx, p) }
	connector, err := gomysql.NewConnector(c)
	if err != nil {
		return nil, nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxOpenConns(pick(newStream(s.w.seed, "pool "+process), 0, 2, 3, 10))
	driver, err := mysql.New(db)
	if err != nil {
		return nil, nil, err
	}
	return ownedDB{&contract{w: s.w, m: d, d: driver, process: process}, mysqlDriver{driver}, db}, p, nil
}
