package sim

import (
	"cmp"
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
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
	begun := time.Now()
	want, err := execute()
	var refusal *gomysql.MySQLError
	switch {
	case errors.As(err, &refusal) && refusal.Number == myInterrupted: // the process was woken while it read
		return err
	case errors.As(err, &refusal):
		want = refused(refusal.Number)
	case err != nil: // the connection was closed while it was made
		return err
	}
	s.count[op.name]++
	before := s.model.tables.clone()
	s.model.ahead = -time.Since(begun) // a lease may have ended since: the server has read its clock in between
	got := s.shadow(op, v, want)
	s.model.ahead = 0
	if !sameAnswer(op, got, want) {
		s.model.tables = before
		got = s.shadow(op, v, want)
	}
	if !sameAnswer(op, got, want) {
		s.t.Errorf("%s %q: the model answers\n%v, want\n%v", op.name, v, got, want)
	}
	if op.writes {
		s.follow()
	}
	return err
}

// shadow executes a statement on the model.
func (s *shadow) shadow(op *myOp, v []string, want myAnswer) myAnswer {
	got, _ := s.model.call(nil, op, v, s.model.time())
	if op.name == "raise" { // each counts from its clock
		s.model.tables.next = want.key + 1
		s.model.tables.tickets[v[0]].seq = want.key
		got.key = want.key
	}
	return got
}

// follow gives the leases and processes of the model the ends that those of the server have.
func (s *shadow) follow() {
	for _, k := range s.rows("SELECT entry, COALESCE(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', expires_at), 0) FROM locker_tickets") {
		if t := s.model.tables.tickets[k.key]; t != nil {
			t.expires = k.end
		}
	}
	for _, k := range s.rows("SELECT id, TIMESTAMPDIFF(MICROSECOND, '1970-01-01', alive_until) FROM locker_processes") {
		if p := s.model.tables.processes[myNum(k.key)]; p != nil {
			p.alive = k.end
		}
	}
}

// endOf is when a row ends.
type endOf struct {
	key string
	end int64
}

func (s *shadow) rows(query string) (all []endOf) {
	rows, err := s.real.QueryContext(context.Background(), query)
	if err != nil {
		s.t.Error(err)
		return nil
	}
	defer rows.Close()
	for rows.Next() {
		var e endOf
		if err := rows.Scan(&e.key, &e.end); err != nil {
			s.t.Error(err)
		}
		all = append(all, e)
	}
	if err := rows.Err(); err != nil {
		s.t.Error(err)
	}
	return all
}

// clone copies the tables.
func (t *myTables) clone() myTables {
	c := *t
	c.tickets, c.processes = make(map[string]*myTicket), make(map[int64]*myProcess)
	for entry, k := range t.tickets {
		one := *k
		c.tickets[entry] = &one
	}
	for id, p := range t.processes {
		one := *p
		c.processes[id] = &one
	}
	return c
}

// sameAnswer reports whether two answers are the same but for the time that has passed between them. The order of rows is not
// fixed, and since when a ticket is there is not compared.
func sameAnswer(op *myOp, got, want myAnswer) bool {
	if got.code != want.code || got.changed != want.changed || got.key != want.key || len(got.rows) != len(want.rows) {
		return false
	}
	key := func(row []any) string { return fmt.Sprint(row[0]) }
	for _, rows := range [][][]any{got.rows, want.rows} {
		slices.SortFunc(rows, func(a, b []any) int { return cmp.Compare(key(a), key(b)) })
	}
	return slices.EqualFunc(got.rows, want.rows, func(a, b []any) bool {
		for i := range a {
			x, y := fmt.Sprint(a[i]), fmt.Sprint(b[i])
			if x != y && !(isTime(op, a, i) && myNum(x) > 0 == (myNum(y) > 0) && max(myNum(x)-myNum(y), myNum(y)-myNum(x)) < 1e6) && !(op.name == "inspect" && i == 7) {
				return false
			}
		}
		return true
	})
}

// isTime reports whether a column is a time in µs.
func isTime(op *myOp, row []any, i int) bool {
	switch op.name {
	case "mine":
		return i == 3
	case "due":
		return i == 1 && fmt.Sprint(row[1]) != "-1"
	case "inspect":
		return i == 8
	case "sweep_left":
		return true
	case "take_call":
		return i == 1 && fmt.Sprint(row[0]) != fmt.Sprint(myDone)
	}
	return false
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
	s.follow()
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
