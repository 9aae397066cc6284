package postgres

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
)

// late is how long a request may take before somebody looks whether its context
// has ended. pgx starts a goroutine for that with every request, which costs more
// than all else that a client does for it, and wakes another processor; nearly
// all requests are over sooner.
const late = 10 * time.Millisecond

// unwatched is a context that has the values of another, which tracers want, and
// no end.
type unwatched struct{ context.Context }

func (unwatched) Done() <-chan struct{}            { return nil }
func (unwatched) Err() error                       { return nil }
func (unwatched) Deadline() (t time.Time, ok bool) { return t, false }

// watched runs f, requests on a connection, and has pgx end them when ctx ends,
// the way the user has configured, though a little later.
func watched(ctx context.Context, c *pgx.Conn, f func(context.Context) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	w := &lateWatch{}
	t := time.AfterFunc(late, func() { w.begin(ctx, c) })
	err := f(unwatched{ctx})
	if !t.Stop() {
		w.end()
	}
	return err
}

type lateWatch struct {
	mu      sync.Mutex
	over    bool
	watcher *ctxwatch.ContextWatcher // nil: not yet
}

func (w *lateWatch) begin(ctx context.Context, c *pgx.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return // and the connection is another's
	}
	build := c.Config().BuildContextWatcherHandler
	w.watcher = ctxwatch.NewContextWatcher(handler{build(c.PgConn()), c})
	w.watcher.Watch(ctx)
}

// end returns when nothing is done to the connection any more.
func (w *lateWatch) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.watcher != nil {
		w.watcher.Unwatch()
	}
}

// handler leaves alone a connection that pgx has given up meanwhile.
type handler struct {
	ctxwatch.Handler
	c *pgx.Conn
}

func (h handler) HandleUnwatchAfterCancel() {
	if !h.c.IsClosed() {
		h.Handler.HandleUnwatchAfterCancel()
	}
}
