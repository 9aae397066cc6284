package sim

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

// shadow executes on the model what a driver executes on a real server, one statement after the other, and compares the answers.
type shadow struct {
	t     *testing.T
	model *innodb
	real  *sql.DB

	mu    sync.Mutex
	count map[string]int
}

// shadowed are connections whose statements are compared.
type shadowed struct {
	sqldriver.Connector
	s *shadow
}

func (c shadowed) Connect(ctx context.Context) (sqldriver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &shadowedConn{conn, c.s}, nil
}

type shadowedConn struct {
	sqldriver.Conn
	s *shadow
}

func (c *shadowedConn) ResetSession(ctx context.Context) error {
	return c.Conn.(sqldriver.SessionResetter).ResetSession(ctx)
}

func (c *shadowedConn) IsValid() bool { return c.Conn.(sqldriver.Validator).IsValid() }

func (c *shadowedConn) ExecContext(ctx context.Context, text string, _ []sqldriver.NamedValue) (sqldriver.Result, error) {
	var r sqldriver.Result
	err := c.s.both(text, func() (a myAnswer, err error) {
		if r, err = c.Conn.(sqldriver.ExecerContext).ExecContext(ctx, text, nil); err != nil {
			return a, err
		}
		changed, _ := r.RowsAffected()
		key, _ := r.LastInsertId()
		return myAnswer{changed: uint64(changed), key: uint64(key)}, nil //nolint:gosec // positive
	})
	return r, err
}

func (c *shadowedConn) QueryContext(ctx context.Context, text string, _ []sqldriver.NamedValue) (sqldriver.Rows, error) {
	var r *readRows
	err := c.s.both(text, func() (a myAnswer, err error) {
		rows, err := c.Conn.(sqldriver.QueryerContext).QueryContext(ctx, text, nil)
		if err != nil {
			return a, err
		}
		r, err = readAll(rows)
		if err != nil {
			return a, err
		}
		a.columns = len(r.columns)
		for _, row := range r.rows {
			var copied []any
			for _, v := range row {
				if b, ok := v.([]byte); ok {
					v = string(b)
				}
				copied = append(copied, v)
			}
			a.rows = append(a.rows, copied)
		}
		return a, nil
	})
	return r, err
}

// readRows are rows that were read.
type readRows struct {
	columns []string
	rows    [][]sqldriver.Value
}

func readAll(rows sqldriver.Rows) (*readRows, error) {
	r := &readRows{columns: slices.Clone(rows.Columns())}
	for {
		row := make([]sqldriver.Value, len(r.columns))
		switch err := rows.Next(row); {
		case errors.Is(err, io.EOF):
			return r, rows.Close()
		case err != nil:
			return nil, errors.Join(err, rows.Close())
		}
		for i, v := range row {
			if b, ok := v.([]byte); ok {
				row[i] = slices.Clone(b)
			}
		}
		r.rows = append(r.rows, row)
	}
}

func (r *readRows) Columns() []string { return r.columns }
func (*readRows) Close() error        { return nil }

func (r *readRows) Next(row []sqldriver.Value) error {
	if len(r.rows) == 0 {
		return io.EOF
	}
	copy(row, r.rows[0])
	r.rows = r.rows[1:]
	return nil
}

// unshadowed are statements that are about connections, or that the model does not need.
var unshadowed = []string{"sleep", "self", "bed", "wake", "wake_call", "isolation", "ping", "tx_sweep", "clock"}

// both executes a statement on the real server, and on the model.
func (s *shadow) both(text string, execute func() (myAnswer, error)) error {
	op, v, ok := findOp(text)
	if !ok || slices.Contains(unshadowed, op.name) {
		_, err := execute()
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	want, err := execute()
	var refusal *gomysql.MySQLError
	switch {
	case errors.As(err, &refusal):
		want = refused(refusal.Number)
	case err != nil: // the connection was closed while it was made
		return err
	}
	got, _ := s.model.call(nil, op, v, s.model.time())
	s.count[op.name]++
	if op.name == "raise" { // each counts from its clock
		s.model.tables.next = want.key + 1
		for _, k := range s.model.tables.tickets {
			if k.entry == v[0] {
				k.seq = want.key
			}
		}
		got.key = want.key
	}
	if a, b := shownAnswer(got), shownAnswer(want); !sameAnswer(a, b) {
		s.t.Errorf("%s %q: the model answers\n%q, want\n%q", op.name, v, a, b)
	}
	return err
}

// shownAnswer writes an answer. The order of rows is not fixed, and since when a ticket is there is not compared.
func shownAnswer(a myAnswer) (all []string) {
	all = []string{fmt.Sprint(a.code), fmt.Sprint(a.changed), fmt.Sprint(a.key)}
	var rows [][]string
	for _, row := range a.rows {
		var values []string
		for i, v := range row {
			if a.columns == 9 && i == 7 {
				v = 0
			}
			values = append(values, fmt.Sprint(v))
		}
		rows = append(rows, values)
	}
	slices.SortFunc(rows, func(a, b []string) int { return slices.Compare(a, b) })
	return append(all, slices.Concat(rows...)...)
}

// sameAnswer reports whether two answers are the same but for the time that has passed between them.
func sameAnswer(got, want []string) bool {
	return slices.EqualFunc(got, want, func(a, b string) bool {
		x, err1 := strconv.ParseInt(a, 10, 64)
		y, err2 := strconv.ParseInt(b, 10, 64)
		const least, most = 1e5, 1e17 // of times, in µs
		return a == b || err1 == nil && err2 == nil && max(x, -x) > least && x < most && max(x-y, y-x) < 1e6
	})
}

// age has all leases and processes be nearer to their ends.
func (s *shadow) age(seconds int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range []string{
		"UPDATE locker_tickets SET expires_at = expires_at - INTERVAL %d SECOND", "UPDATE locker_processes SET alive_until = alive_until - INTERVAL %d SECOND",
	} {
		if _, err := s.real.ExecContext(s.t.Context(), fmt.Sprintf(text, seconds)); err != nil {
			s.t.Fatal(err)
		}
	}
	for _, k := range s.model.tables.tickets {
		k.expires -= seconds * 1e6
	}
	for _, p := range s.model.tables.processes {
		p.alive -= seconds * 1e6
	}
}

// TestModelOfMySQL: the model answers as a real server does, for whatever drivers ask.
func TestModelOfMySQL(t *testing.T) {
	srv := testbed.MariaDB(t)
	u, err := url.Parse(srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	c := gomysql.NewConfig()
	c.Net, c.Addr, c.DBName, c.User = "tcp", u.Host, u.Path[1:], u.User.Username()
	c.Passwd, _ = u.User.Password()
	connector, err := gomysql.NewConnector(c)
	if err != nil {
		t.Fatal(err)
	}
	s := &shadow{t: t, real: sql.OpenDB(connector), model: newInnoDB(&server{w: &world{begun: time.Now()}, name: "mysql"}), count: make(map[string]int)}
	defer s.real.Close()
	s.model.rate, s.model.ahead = 1, 0
	first, err := mysql.New(s.real) // it creates the tables, and raises the tokens
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.real.QueryRowContext(t.Context(), "SELECT (@@server_id << 32) | ((UUID_SHORT() >> 24) & 4294967295)").Scan(&s.model.start); err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(shadowed{connector, s})
	defer db.Close()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := newStream(seed, "calls")
	var drivers []*mysql.Driver
	for range 4 { // the last one never waits: it takes and releases with single statements
		d, err := mysql.New(db)
		if err != nil {
			t.Fatal(err)
		}
		drivers = append(drivers, d)
	}
	var waits sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	held := make(map[string]driver.Grant) // by name and ID
	var mu sync.Mutex
	for begun := time.Now(); time.Since(begun) < 8*time.Second && !t.Failed(); {
		of := rnd.n(len(drivers))
		d := drivers[of]
		n := rnd.n(3)
		r := driver.Request{
			Name: fmt.Sprint("n", n), ID: fmt.Sprint("n", n, "-", rnd.n(6)), Owner: pick(rnd, "", "me"), Note: pick(rnd, "", "\x00\xff"),
			TTL: time.Duration(1+rnd.n(6)) * 1000 * time.Second, Shared: n > 0 && !rnd.one(3),
		}
		if r.Shared && rnd.one(2) {
			r.Limit = 1 + rnd.n(3)
		}
		mu.Lock()
		g, ok := held[r.ID]
		mu.Unlock()
		h := r.Hold(g.Token)
		switch rnd.n(9) {
		case 0, 1, 2:
			if ok {
				continue
			}
			r.Wait = of < 3 && !rnd.one(4)
			bounded, end := context.WithTimeout(ctx, time.Duration(rnd.n(3000))*time.Millisecond)
			waits.Go(func() {
				defer end()
				if g, err := d.Acquire(bounded, r); err == nil {
					mu.Lock()
					defer mu.Unlock()
					held[r.ID] = g
				}
			})
			time.Sleep(time.Duration(rnd.n(10)) * time.Millisecond)
		case 3, 4, 5:
			_ = d.Release(ctx, h)
			mu.Lock()
			delete(held, r.ID)
			mu.Unlock()
		case 6:
			_ = d.Renew(ctx, h, r.TTL)
		case 7:
			_, _ = d.Inspect(ctx, r.Name)
			_, _ = d.List(ctx)
		case 8:
			switch rnd.n(4) {
			case 0:
				s.age(1000 * int64(rnd.n(3)))
			case 1:
				_ = d.Break(ctx, r.Name, g.Token)
			case 2:
				_ = d.Shorten(ctx, h, r.TTL/2)
			}
		}
	}
	cancel()
	waits.Wait()
	for _, d := range drivers {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Log(s.count)
}
