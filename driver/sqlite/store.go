package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
)

// store is the open database. One goroutine executes all accesses, one after the
// other, on one connection: nobody else waits for the file, so that every method
// returns when its context ends, also while the disk hangs (D16).
type store struct {
	path    string // without symbolic links
	opened  os.FileInfo
	boot    string
	busy    time.Duration // how long to wait for other processes' transactions
	through through

	pool  *sql.DB
	conn  *sql.Conn
	stmts map[string]*sql.Stmt

	jobs  chan func()   // to the goroutine
	quit  chan struct{} // closed by close
	ended chan struct{} // closed when the goroutine has returned
	last  atomic.Pointer[error]
}

// through is what every access passes. In tests it may fail, or take its time.
type through func(ctx context.Context, access func() error) error

func direct(_ context.Context, access func() error) error { return access() }

// kind is what an access does first.
type kind string

const (
	reads  kind = "BEGIN"           // sees one state of the database, and waits for nobody
	writes kind = "BEGIN IMMEDIATE" // is the only one of its kind at a time
)

func (s *store) run() {
	defer close(s.ended)
	defer func() { _ = s.release() }() // every transaction is committed already
	for {
		select {
		case f := <-s.jobs:
			f()
		case <-s.quit:
			return
		}
	}
}

// release closes the database. Statements of one connection are not closed with it.
func (s *store) release() error {
	var errs []error
	for _, st := range s.stmts {
		errs = append(errs, st.Close())
	}
	if s.conn != nil {
		errs = append(errs, s.conn.Close())
	}
	return errors.Join(append(errs, s.pool.Close())...)
}

// close ends the goroutine, and waits for it no longer than d.
func (s *store) close(d time.Duration) {
	close(s.quit)
	select {
	case <-s.ended:
	case <-time.After(d): // the disk hangs: the goroutine ends when that does
	}
}

// ask executes f in a transaction and returns what f does. When ctx ends, or
// closing is closed, it returns: an access under way may be executed all the same, one
// that has not begun will not be.
func ask[T any](ctx context.Context, s *store, closing <-chan struct{}, k kind, f func(*tx) (T, error)) (T, error) {
	var none T
	if err := context.Cause(ctx); err != nil {
		return none, driver.NoTicket(err)
	}
	type answer struct {
		value T
		err   error
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // what nobody waits for any more does not wait for the file
	answered := make(chan answer, 1)
	job := func() {
		var a answer
		a.err = s.access(ctx, k, func(t *tx) (err error) {
			a.value, err = f(t)
			return err
		})
		answered <- a
	}
	jobs := s.jobs
	for {
		select {
		case jobs <- job:
			jobs = nil
		case a := <-answered:
			if a.err != nil {
				return none, a.err
			}
			return a.value, nil
		case <-ctx.Done():
			return none, s.unanswered(ctx)
		case <-closing:
			return none, driver.ErrClosed
		}
	}
}

// unanswered is the error of an access whose context has ended: with the reason
// why the accesses before it failed.
func (s *store) unanswered(ctx context.Context) error {
	return driver.Unavailable(errors.Join(context.Cause(ctx), s.lastError()))
}

func (s *store) lastError() error {
	if err := s.last.Load(); err != nil {
		return *err
	}
	return nil
}

// access executes f in a transaction, as soon as other processes let it.
func (s *store) access(ctx context.Context, k kind, f func(*tx) error) error {
	err := s.through(ctx, func() error {
		return s.explain(s.patiently(ctx, func() error {
			return s.transact(k, func(t *tx) error {
				if err := t.begin(k); err != nil {
					return err
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

// patiently calls f again while another process has the file locked. SQLite's own
// busy_timeout would sleep for up to 100 ms at a time, and past the end of ctx.
func (s *store) patiently(ctx context.Context, f func() error) error {
	const first, longest = 50 * time.Microsecond, 2 * time.Millisecond
	begun := time.Now()
	for pause := first; ; pause = min(2*pause, longest) {
		err := f()
		if !isBusy(err) {
			return err
		}
		if waited := time.Since(begun); waited > s.busy {
			return fmt.Errorf("another process has had the file locked for %v (it may have been stopped in the middle of a write): %w",
				waited.Round(time.Millisecond), err)
		}
		t := time.NewTimer(pause/2 + rand.N(pause)) //nolint:gosec // no secret
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// transact executes f in a transaction, which is committed unless f fails. The
// processes that f notifies are notified when the commit is done.
func (s *store) transact(k kind, f func(*tx) error) error {
	t := &tx{s: s}
	if err := t.exec(string(k)); err != nil {
		return err
	}
	err := f(t)
	if err == nil {
		err = t.exec("COMMIT")
	}
	if err != nil {
		_ = t.exec("ROLLBACK") // fails if SQLite has rolled back already
		return err
	}
	for _, process := range t.notified {
		notify(filepath.Join(pipeFolder(s.path), process))
	}
	return nil
}

// tx is a transaction.
type tx struct {
	s        *store
	now      int64
	soonest  int64 // when the next lease or process expires
	notified []string
}

// background: statements take microseconds, and are not interrupted.
var background = context.Background()

// stmt returns a statement, prepared. It is closed with the store.
func (t *tx) stmt(query string) (*sql.Stmt, error) {
	st := t.s.stmts[query]
	if st == nil {
		var err error
		if st, err = t.s.conn.PrepareContext(background, query); err != nil {
			return nil, err
		}
		t.s.stmts[query] = st
	}
	return st, nil
}

func (t *tx) exec(query string, args ...any) error {
	_, _, err := t.count(query, args...)
	return err
}

// count executes a statement. It tells how many rows were changed, and the key of the last
// that was inserted.
func (t *tx) count(query string, args ...any) (n, key int64, err error) {
	st, err := t.stmt(query) //nolint:sqlclosecheck // closed with the store
	if err != nil {
		return 0, 0, err
	}
	res, err := st.ExecContext(background, args...)
	if err != nil {
		return 0, 0, err
	}
	n, err = res.RowsAffected()
	if err == nil {
		key, err = res.LastInsertId()
	}
	return n, key, err
}

// row reads the only row of a query. Without one it is false.
func (t *tx) row(into []any, query string, args ...any) (bool, error) {
	st, err := t.stmt(query) //nolint:sqlclosecheck // closed with the store
	if err != nil {
		return false, err
	}
	err = st.QueryRowContext(background, args...).Scan(into...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// rows calls each for every row of a query, until it returns false.
func (t *tx) rows(each func(scan func(...any) error) (more bool, err error), query string, args ...any) error {
	st, err := t.stmt(query) //nolint:sqlclosecheck // closed with the store
	if err != nil {
		return err
	}
	rows, err := st.QueryContext(background, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for more := true; more && err == nil && rows.Next(); {
		more, err = each(rows.Scan)
	}
	return cmp.Or(err, rows.Err())
}
