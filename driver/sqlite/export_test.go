package sqlite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// WithInterceptor calls f for every transaction of the driver.
func WithInterceptor(f func(ctx context.Context, transaction func() error) error) Option {
	return func(o *options) { o.intercept = f }
}

// WithSweep sets how often the driver removes what has expired while it does not wait.
func WithSweep(d time.Duration) Option { return func(o *options) { o.sweep = d } }

// LimitPages sets the greatest size of the database, for the driver's connection. It
// cannot be less than the present size.
func (d *Driver) LimitPages(n int) error {
	_, err := run(context.Background(), d.s, nil, reads, func(t *tx) (struct{}, error) {
		var now int
		return struct{}{}, t.s.conn.QueryRowContext(uninterrupted, fmt.Sprint("PRAGMA max_page_count = ", n)).Scan(&now)
	})
	return err
}

// Make makes the database if there is none.
func (d *Driver) Make() error {
	_, err := run(context.Background(), d.s, nil, mode{begin: reads.begin}, func(*tx) (struct{}, error) { return struct{}{}, nil })
	return err
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
	_, err := run(context.Background(), d.s, nil, writes, func(t *tx) (struct{}, error) {
		return struct{}{}, cmp.Or(t.exec(query), ErrAborted)
	})
	return err
}

// WakesWhoLooks reports whether a ticket wakes the background task if it is queued while the task checks for waiters,
// after a time without any.
func WakesWhoLooks() bool {
	d := &Driver{sweep: time.Hour, waiters: waiters{byID: make(map[string]*waiter)}}
	d.waiters.mu.Lock() // so that it is checking
	slept := make(chan time.Duration)
	go func() { slept <- (&poller{d: d}).next() }()
	wakes := false
	for end := time.Now().Add(5 * time.Second); !wakes && time.Now().Before(end); time.Sleep(time.Millisecond) {
		wakes = d.idle.Load() // as Acquire does
	}
	d.waiters.mu.Unlock()
	<-slept
	return wakes
}
