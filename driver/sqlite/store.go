package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
	"github.com/lockerproject/locker/internal/retry"
)

// store is the open database. One goroutine executes all transactions, one after the other, on one connection.
// Callers only wait for it, so that every method returns when its context ends, even while the disk hangs
// (D16).
type store struct {
	options
	path   string            // as it was given, but absolute
	file   string            // the same without symbolic links, once it is open
	opened map[string]fileID // the files that are open, by their paths
	isOpen atomic.Bool
	boot   string

	pool  *sql.DB
	conn  *sql.Conn
	stmts map[string]*sql.Stmt // prepared, by their text

	closing <-chan struct{} // is closed when Close begins

	first chan func()           // to the goroutine: see mode
	jobs  chan func()           // the same, for the other transactions
	quit  chan struct{}         // closed by close
	ended chan struct{}         // closed when the goroutine has returned
	last  atomic.Pointer[error] // of the last transaction, if the store was unavailable
}

// interceptor is called for every transaction. Tests make it fail or wait.
type interceptor func(ctx context.Context, transaction func() error) error

func direct(_ context.Context, transaction func() error) error { return transaction() }

// mode is how a transaction begins, and whether it is executed before the others of the
// process. Leases and waiting tickets are lost unless they are renewed in time, so their
// renewal must not queue behind a thousand acquisitions.
type mode struct {
	begin   string
	later   bool  // f begins: its first statement may be the whole transaction
	first   bool  // before the others
	create  bool  // where there is no database yet, it is made; else the result is errAbsent
	last    bool  // after Close, too
	process int64 // that asks, or 0
}

func (m mode) mayChange() bool { return m.begin != reads.begin }

func (m mode) of(process int64) mode {
	m.process = process
	return m
}

const immediate = "BEGIN IMMEDIATE" // only one at a time may write

var (
	reads   = mode{begin: "BEGIN"} // it sees one state of the database, and waits for nobody
	looks   = mode{begin: "BEGIN", first: true}
	pings   = mode{begin: immediate}
	makes   = mode{begin: "BEGIN", create: true}
	takes   = mode{begin: immediate, later: true}
	writes  = mode{begin: immediate, first: true}
	removes = mode{begin: immediate, first: true, later: true}
	leaves  = mode{begin: immediate, first: true, last: true}
)

// serve is the goroutine that executes the transactions.
func (s *store) serve() {
	defer close(s.ended)
	defer func() { _ = s.release() }() // every transaction is committed already
	for {
		select {
		case job := <-s.first:
			job()
			continue
		default:
		}
		select {
		case job := <-s.first:
			job()
		case job := <-s.jobs:
			job()
		case <-s.quit:
			return
		}
	}
}

// release closes the database. Closing a connection does not close its statements.
func (s *store) release() error {
	var errs []error
	for _, st := range s.stmts {
		errs = append(errs, st.Close())
	}
	clear(s.stmts)
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
	}
	if s.pool != nil {
		errs = append(errs, s.pool.Close())
	}
	s.conn, s.pool = nil, nil
	return errors.Join(errs...)
}

// close ends the goroutine, and waits for it at most for d: if the disk hangs, the goroutine ends later.
func (s *store) close(d time.Duration) {
	close(s.quit)
	select {
	case <-s.ended:
	case <-time.After(d):
	}
}

// run runs f in a transaction and returns its results. It returns early when ctx ends or Close begins:
// then a transaction that has begun may still be committed, and one that has not will not begin.
func run[T any](ctx context.Context, s *store, m mode, f func(*tx) (T, error)) (T, error) {
	var none T
	if err := context.Cause(ctx); err != nil {
		return none, err
	}
	closing := s.closing
	if m.last {
		closing = nil
	}
	type result struct {
		value T
		err   error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // a job whose caller has returned does not wait for the file
	results := make(chan result, 1)
	job := func() {
		var r result
		r.err = s.transaction(ctx, m, func(t *tx) (err error) {
			r.value, err = f(t)
			return err
		})
		results <- r
	}
	jobs := s.jobs
	if m.first {
		jobs = s.first
	}
	for {
		select {
		case jobs <- job:
			jobs = nil
		case r := <-results:
			if r.err != nil {
				return none, r.err
			}
			return r.value, nil
		case <-ctx.Done():
			return none, driver.Unavailable(errors.Join(context.Cause(ctx), s.lastError()))
		case <-closing:
			return none, driver.ErrClosed
		}
	}
}

func (s *store) lastError() error {
	if err := s.last.Load(); err != nil {
		return *err
	}
	return nil
}

// transaction runs f in a transaction as soon as other processes let it.
func (s *store) transaction(ctx context.Context, m mode, f func(*tx) error) error {
	err := s.intercept(ctx, func() error {
		if !s.isOpen.Load() {
			if err := s.open(ctx, m.create); err != nil {
				return err
			}
		}
		return s.explain(s.retryBusy(ctx, func() error {
			if err := s.checkReplaced(); err != nil {
				return err
			}
			return s.attempt(m, func(t *tx) error {
				if !m.later {
					if err := t.start(); err != nil {
						return err
					}
				}
				return f(t)
			})
		}))
	})
	if errors.Is(err, driver.ErrUnavailable) {
		s.last.Store(&err)
	} else {
		s.last.Store(nil)
	}
	return err
}

// retryBusy calls f again while another process has the file locked. SQLite's own busy_timeout sleeps for up to
// 100 ms at a time, and past the end of ctx.
func (s *store) retryBusy(ctx context.Context, f func() error) error {
	pause := retry.Backoff{First: 50 * time.Microsecond, Most: 2 * time.Millisecond}
	for begun := time.Now(); ; {
		err := f()
		if !isBusy(err) {
			return err
		}
		if waited := time.Since(begun); waited > s.busy {
			return fmt.Errorf("another process has had the file locked for %v (it may have been stopped in the middle of a write): %w",
				waited.Round(time.Millisecond), err)
		}
		if !retry.Sleep(ctx, pause.Next(), nil) {
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// attempt runs f, and commits the transaction that f enters unless f fails. After the commit it sends the notices of f.
func (s *store) attempt(m mode, f func(*tx) error) error {
	t := &tx{s: s, mode: m, now: s.clock()}
	err := f(t)
	if err == nil && t.begun {
		err = t.exec("COMMIT")
	}
	if err != nil {
		if t.begun {
			_ = t.exec("ROLLBACK") // fails if SQLite has rolled back already
		}
		return err
	}
	for _, n := range t.notices {
		s.send(n)
	}
	return nil
}

// tx is a transaction.
type tx struct {
	s *store
	mode
	begun   bool
	now     int64
	grants  []sqlqueue.Grant // to the process that asks
	notices []notice         // to others
}

// enter enters the transaction, and reads the clock after that: the process may be stopped in between, and a lease
// must not count from before a heartbeat that it is granted upon.
func (t *tx) enter() error {
	if err := t.exec(t.mode.begin); err != nil {
		return err
	}
	t.begun, t.now = true, t.s.clock()
	return nil
}

// uninterrupted is the context of statements: they take microseconds.
var uninterrupted = context.Background()

// stmt returns a prepared statement, which is closed with the store.
func (t *tx) stmt(query string) (*sql.Stmt, error) {
	st := t.s.stmts[query]
	if st == nil {
		var err error
		if st, err = t.s.conn.PrepareContext(uninterrupted, query); err != nil {
			return nil, err
		}
		t.s.stmts[query] = st
	}
	return st, nil
}

// exec executes a statement.
func (t *tx) exec(query string, args ...any) error {
	_, _, err := t.count(query, args...)
	return err
}

// count executes a statement. It returns the number of changed rows, and the key of the last row that was
// inserted.
func (t *tx) count(query string, args ...any) (n, key int64, err error) {
	st, err := t.stmt(query) //nolint:sqlclosecheck // closed with the store
	if err != nil {
		return 0, 0, err
	}
	res, err := st.ExecContext(uninterrupted, args...)
	if err != nil {
		return 0, 0, err
	}
	n, err1 := res.RowsAffected()
	key, err2 := res.LastInsertId()
	return n, key, cmp.Or(err1, err2)
}

// row reads the only row of a query, and reports whether there is one.
func (t *tx) row(into []any, query string, args ...any) (found bool, err error) {
	err = t.rows(func(scan scanner) (more bool, err error) {
		found = true
		return false, scan(into...)
	}, query, args...)
	return found, err
}

// scanner reads the columns of a row.
type scanner func(columns ...any) error

// rows calls each for the rows of a query, until it returns false or fails.
func (t *tx) rows(each func(scanner) (more bool, err error), query string, args ...any) error {
	st, err := t.stmt(query) //nolint:sqlclosecheck // closed with the store
	if err != nil {
		return err
	}
	rows, err := st.QueryContext(uninterrupted, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for more := true; more && err == nil && rows.Next(); {
		more, err = each(rows.Scan)
	}
	return cmp.Or(err, rows.Err())
}
