package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// WithInterceptor calls f for every transaction of the driver.
func WithInterceptor(f func(ctx context.Context, transaction func() error) error) Option {
	return func(o *options) { o.intercept = f }
}

// WithClock has f called instead of reading the clock.
func WithClock(f func() int64) Option { return func(o *options) { o.clock = f } }

// Clock is the clock that a driver reads without it.
func Clock() int64 { return clock() }

// WithSweep sets how often the driver removes what has expired while it does not wait.
func WithSweep(d time.Duration) Option { return func(o *options) { o.sweep = d } }

// LimitPages sets the greatest size of the database, for the driver's connection. It
// cannot be less than the present size.
func (d *Driver) LimitPages(n int) error {
	_, err := run(context.Background(), d.s, reads, func(t *tx) (struct{}, error) {
		var now int
		return struct{}{}, t.s.conn.QueryRowContext(uninterrupted, fmt.Sprint("PRAGMA max_page_count = ", n)).Scan(&now)
	})
	return err
}

// Make makes the database if there is none.
func (d *Driver) Make() error {
	return d.s.Create(context.Background())
}

// SlowFiles makes files slowly, until the function that it returns is called: they are open for d.
func SlowFiles(d time.Duration) (restore func()) {
	making.Lock()
	defer making.Unlock()
	before := makeFile
	makeFile = func(path string) error {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		time.Sleep(d)
		return f.Close()
	}
	return func() {
		making.Lock()
		defer making.Unlock()
		makeFile = before
	}
}

// ErrAborted is the error of Abort.
var ErrAborted = errors.New("aborted")

// Abort executes a statement in a transaction that fails after it.
func (d *Driver) Abort(query string) error {
	_, err := run(context.Background(), d.s, writes, func(t *tx) (struct{}, error) {
		return struct{}{}, cmp.Or(t.exec(query), ErrAborted)
	})
	return err
}

// Receives reports whether notices arrive.
func (d *Driver) Receives() bool { return sqlqueue.Receiving(d.Engine) }

// FrequentStatements write, and are of every cycle or hand-off.
var FrequentStatements = []string{sqlTakeFree, sqlRemoveAlone, sqlInsert, sqlDelete, sqlHold, sqlRenew}

// Store is what the engine works on.
func (d *Driver) Store() sqlqueue.Store { return d.s }

// WithConnect has f called to open the database.
func WithConnect(f func(dsn string) (*sql.DB, error)) Option {
	return func(o *options) { o.connect = f }
}
