package sim

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"
)

// Between the driver of a process and SQLite. The messages of a process are the beginnings of its transactions, the commits of
// those that write, and statements that are transactions of their own. Each may be late, and so may what follows it: the process
// stands still then, perhaps inside of a transaction, so that nobody else can write. A disk that is full refuses what writes; a
// server that is down is another program that has the file locked. A process that dies leaves its transaction as it is.

type diskConnector struct {
	t   *tenant
	dsn string
}

var errDead = errors.New("sim: the process is dead")

// Connect implements driver.Connector.
func (k diskConnector) Connect(context.Context) (driver.Conn, error) {
	if k.t.p.isDead() {
		return nil, errDead
	}
	raw, err := new(sqlite.Driver).Open(k.dsn)
	if err != nil {
		return nil, err
	}
	c := &diskConn{Conn: raw, t: k.t, w: k.t.p.w, p: k.t.p, dead: make(chan struct{})}
	c.die = sync.OnceFunc(func() { close(c.dead) })
	c.p.mu.Lock()
	defer c.p.mu.Unlock()
	c.p.dials++
	c.rnd = newStream(c.w.seed, fmt.Sprint("disk ", c.p.process, c.p.made.Sub(c.w.begun), c.p.dials))
	c.p.conns[c] = struct{}{}
	return c, nil
}

// Driver implements driver.Connector.
func (diskConnector) Driver() driver.Driver { return new(sqlite.Driver) }

// diskConn is a connection of a process.
type diskConn struct {
	driver.Conn
	t    *tenant
	w    *world
	p    *path
	rnd  *stream
	dead chan struct{} // closed when the process dies
	die  func()

	one    *once    // what becomes of the present message
	begun  string   // what has begun the present transaction; "": there is none
	wrote  string   // what it has written last
	ids    []string // of tickets, perhaps, that it has named
	locked bool     // the last message found the file locked, and is sent again
}

// fail has the process die, if that is why its connections are reset.
func (c *diskConn) fail(error) {
	if c.p.isDead() {
		c.die()
	}
}

func (c *diskConn) Close() error {
	c.p.mu.Lock()
	delete(c.p.conns, c)
	c.p.mu.Unlock()
	return c.Conn.Close()
}

// isDead reports whether the process has died. Then its transaction has never been.
func (c *diskConn) isDead() bool {
	select {
	case <-c.dead:
	default:
		return false
	}
	if c.begun != "" {
		c.begun = ""
		_, _ = c.Conn.(driver.ExecerContext).ExecContext(context.Background(), "ROLLBACK", nil)
	}
	return true
}

// PrepareContext implements driver.ConnPrepareContext.
func (c *diskConn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if c.isDead() {
		return nil, errDead
	}
	st, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, query)
	if err != nil {
		return nil, err
	}
	return &diskStmt{st, c, query}, nil
}

// diskStmt is a statement, also where the driver prepares none.
type diskStmt struct {
	driver.Stmt
	c     *diskConn
	query string
}

// ExecContext implements driver.StmtExecContext.
func (s *diskStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (driver.Result, error) {
	return pass(s.c, s.query, args, func() (driver.Result, error) { return s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args) })
}

// QueryContext implements driver.StmtQueryContext.
func (s *diskStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (driver.Rows, error) {
	return pass(s.c, s.query, args, func() (driver.Rows, error) { return s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args) })
}

// pass has SQLite do something, unless the world prevents that.
func pass[T any](c *diskConn, query string, args []driver.NamedValue, do func() (T, error)) (answer T, err error) {
	if c.isDead() {
		return answer, errDead
	}
	what := c.what(query, args)
	if err = c.before(what); err != nil {
		return answer, err
	}
	answer, err = do()
	return answer, c.after(query, what, err)
}

// what returns the message that a statement is; "": it is none.
func (c *diskConn) what(query string, args []driver.NamedValue) string {
	f := strings.Fields(query)
	table := slices.IndexFunc(f, func(s string) bool { return s == "tickets" || s == "processes" || s == "store" })
	changes := table > 0 && (f[0] == "INSERT" || f[0] == "UPDATE" || f[0] == "DELETE")
	switch {
	case query == "BEGIN":
		return "read"
	case query == "COMMIT" && c.wrote != "":
		return query + "/" + c.wrote
	case c.begun == "" && f[0] == "BEGIN":
		return "begin"
	case !changes:
		return ""
	}
	if c.begun == "" {
		c.ids = nil
	}
	for _, a := range args {
		if s, ok := a.Value.(string); ok {
			c.ids = append(c.ids, s)
		}
	}
	if c.wrote = f[0] + "/" + f[table]; c.begun == "" {
		return c.wrote
	}
	return ""
}

// before is what happens before a message.
func (c *diskConn) before(what string) error {
	if what == "" {
		return nil
	}
	if !c.locked {
		c.one = c.p.passes(what, false)
		c.wait(what)
	}
	_, down, full := c.p.s.state()
	now := time.Now()
	switch {
	case c.isDead():
		return errDead
	case what == "read":
	case what == "begin":
		if down.After(now) {
			c.locked = true
			return sqliteErrors().locked
		}
	case c.one.is("drop") || c.p.has("lose") || full.After(now):
		return sqliteErrors().full
	case c.begun == "" && down.After(now):
		c.locked = true
		return sqliteErrors().locked
	}
	return nil
}

// wait waits until the disk is there.
func (c *diskConn) wait(what string) {
	now := time.Now()
	at, held := c.p.arrival(c.rnd)
	if c.begun != "" && !held && !c.rnd.one(8) {
		at = now
	}
	late := c.one.late("drop")
	if writes(what) && c.p.plays("lag", c.rnd) {
		late += c.p.lag(c.rnd)
	}
	if c.begun == "" && c.one.is("hold") && c.one.writes > 0 {
		c.p.sleepOrWritten(c.one.lasts, c.one, "hold")
	} else {
		late += c.one.late("hold")
	}
	if c.begun != "" {
		const longest = 7 * time.Second // for which others wait, beyond the driver's busy timeout
		late = min(late, longest)
	}
	at = at.Add(late)
	c.sleep(at)
	for paused, _, _ := c.p.s.state(); paused.After(time.Now()) && !c.isDead(); paused, _, _ = c.p.s.state() {
		c.sleep(paused.Add(c.rnd.upTo(c.p.usual)))
	}
}

// sleep has the process stand still until then. If it is in a transaction that writes, nobody else can write.
func (c *diskConn) sleep(until time.Time) {
	left := time.Until(until)
	if left <= 0 {
		return
	}
	if left > 20*time.Millisecond {
		whom := c.p.process
		if c.begun != "" {
			whom = ""
		}
		c.w.fault("hold", whom, until)
	}
	timer := time.NewTimer(time.Until(c.w.unique(until)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-c.dead:
	}
}

// after is what happens after a statement.
func (c *diskConn) after(query, what string, err error) error {
	if e := (*sqlite.Error)(nil); what != "" {
		c.locked = errors.As(err, &e) && e.Code()&0xff == codes.SQLITE_BUSY
	}
	switch {
	case query == "ROLLBACK":
		c.begun, c.wrote = "", ""
		return err
	case err != nil || what == "":
		if query == "COMMIT" && err == nil {
			c.begun = ""
		}
		return err
	case what == "read" || what == "begin":
		c.begun, c.wrote, c.ids = query, "", nil
		return nil
	}
	c.begun = ""
	return c.written(what)
}

// written is what happens after a write.
func (c *diskConn) written(what string) error {
	c.wrote = ""
	c.w.message("%s %s", c.p.process, what)
	c.w.comesBack(c.p.s, c.ids, func(name, id string, _ time.Time) bool {
		there, _ := c.t.d.lease(name, id, time.Time{})
		return there
	})
	c.p.passes(what, true)
	at := time.Now().Add(c.one.late("deaf"))
	if c.p.plays("mute", c.rnd) {
		at = at.Add(c.p.lag(c.rnd))
	}
	c.p.sleepOrWritten(c.one.late("keep"), c.one, "keep")
	if c.sleep(at); c.isDead() {
		return errDead
	}
	return nil
}
