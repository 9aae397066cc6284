package sqlite_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/sqlite"
)

// TestPowerIsLost loses all that SQLite has not flushed to the disk, at each of some boots: tokens grow nevertheless.
func TestPowerIsLost(t *testing.T) {
	t.Parallel()
	path, last := newPath(t), uint64(0)
	for boot := range 4 {
		lost := &flushed{path: path}
		d := openAt(t, path, sqlite.WithConnect(lost.connect))
		for _, id := range []string{"1", "2"} {
			g, err := d.Acquire(within(t), driver.Request{Name: id, ID: id, TTL: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			if g.Token <= last {
				t.Errorf("boot %d: token %d after %d", boot, g.Token, last)
			}
			last = g.Token
		}
		path = newPath(t)
		lost.restore(t, path)
		db := openDB(path)
		_, _ = db.ExecContext(ctx, "UPDATE store SET boot = 'the boot before'") // there may be no table
		if err := errors.Join(db.Close(), d.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

// A flushed has what a loss of power leaves of a database: the file, which SQLite flushes before it forgets the log, and the log as it
// was at the last commit with synchronous=FULL.
type flushed struct {
	path string
	log  []byte
	of   sqldriver.Driver
}

func (d *flushed) connect(dsn string) (*sql.DB, error) {
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		return nil, err
	}
	d.of = db.Driver()
	return sql.OpenDB(connector{d, dsn}), db.Close()
}

func (d *flushed) restore(t *testing.T, path string) {
	t.Helper()
	file, err := os.ReadFile(d.path)
	if err = errors.Join(err, os.WriteFile(path, file, 0o600)); err == nil && d.log != nil {
		err = os.WriteFile(path+"-wal", d.log, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

type connector struct {
	*flushed
	dsn string
}

func (c connector) Driver() sqldriver.Driver { return c.of }

func (c connector) Connect(context.Context) (sqldriver.Conn, error) {
	conn, err := c.of.Open(c.dsn)
	return &diskConn{conn, c.flushed}, err
}

type diskConn struct {
	sqldriver.Conn
	d *flushed
}

func (c *diskConn) Prepare(query string) (sqldriver.Stmt, error) {
	s, err := c.Conn.Prepare(query)
	if err == nil && strings.HasPrefix(query, "COMMIT") {
		s = &commit{s, c}
	}
	return s, err
}

type commit struct {
	sqldriver.Stmt
	c *diskConn
}

func (s *commit) ExecContext(ctx context.Context, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	r, err := s.Stmt.(sqldriver.StmtExecContext).ExecContext(ctx, args)
	if err == nil {
		err = s.c.note()
	}
	return r, err
}

// note notes the log if a commit has flushed it.
func (c *diskConn) note() error {
	s, err := c.Conn.Prepare("PRAGMA synchronous")
	if err != nil {
		return err
	}
	defer s.Close()
	rows, err := s.(sqldriver.StmtQueryContext).QueryContext(ctx, nil)
	if err != nil {
		return err
	}
	defer rows.Close()
	level := []sqldriver.Value{nil}
	if err = rows.Next(level); err == nil && level[0].(int64) >= 2 {
		if c.d.log, err = os.ReadFile(c.d.path + "-wal"); errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
	}
	return err
}
