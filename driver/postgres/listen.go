package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

// The listener is the background task that is notified of grants and losses. It runs while something is held or
// waited for, on a connection outside the pool. It listens only on a session of the server that
// is its own: the sessions behind a pooler (PgBouncer) are shared by transactions of all its clients, and a LISTEN
// would stay on them.
const (
	listenIdle  = 30 * time.Second // how long it runs after the last use
	listenBound = 10 * time.Second // for connecting
	pooledPause = time.Minute      // before it tries again where there is a pooler
)

// errPooled says that a connection does not end at the server's session.
var errPooled = errors.New("a pooler is on the way")

// errRemoved is the cause of a loss if somebody has broken the ticket.
var errRemoved = fmt.Errorf("%w: the ticket was removed from the queue", driver.ErrLost)

// channel is the name of this driver's notification channel.
func (d *Driver) channel() string {
	return d.w.channel + strconv.FormatInt(d.waiters.current()/processIDs, 16)
}

// listenSoon starts the listener, unless it runs.
func (d *Driver) listenSoon() {
	if d.opts.listen {
		d.start(&d.waiters.listening, d.listen)
	}
}

func (d *Driver) listen() {
	backoff := retry.Backoff{First: 20 * time.Millisecond, Most: time.Second}
	for {
		began := time.Now()
		err := d.listenOnce()
		if err == nil { // idle; another listener may run by now
			return
		}
		received := d.waiters.setReceiving(false)
		if received && time.Since(began) > time.Second {
			backoff.Reset()
		}
		pause := backoff.Next()
		if errors.Is(err, errPooled) {
			pause = pooledPause
		}
		if !retry.Sleep(d.ctx, pause, nil) || d.waiters.stopListening(d.opts.listenIdle) {
			return
		}
	}
}

// setReceiving records whether notifications arrive, and returns whether they did before. When they begin to arrive,
// some may have been missed.
func (ws *waiters) setReceiving(receiving bool) (before bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	before, ws.receiving = ws.receiving, receiving
	ws.missed = ws.missed || receiving
	signal(ws.changed)
	return before
}

// stopListening ends the listener if nothing was held or waited for in a while.
func (ws *waiters) stopListening(idle time.Duration) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.held)+len(ws.byID) > 0 || time.Since(ws.used) < idle {
		return false
	}
	ws.listening, ws.receiving = false, false
	return true
}

// listenOnce listens on one connection until it breaks. It returns nil if nothing was held or waited for in a while.
func (d *Driver) listenOnce() error {
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	select {
	case <-d.waiters.reconnect: // was for an older connection
	default:
	}
	c, err := d.listenConn(ctx)
	if err != nil {
		return err
	}
	defer hangUp(context.WithoutCancel(ctx), c)
	d.work.Go(func() {
		select {
		case <-d.waiters.reconnect:
			cancel()
		case <-ctx.Done():
		}
	})
	d.waiters.setReceiving(true)
	for {
		n, err := await(ctx, c, d.opts.listenIdle)
		switch {
		case err != nil:
			return err
		case n != nil:
			d.notified(n.Payload)
		case d.waiters.stopListening(d.opts.listenIdle):
			return nil
		}
	}
}

// listenConn opens a connection and listens on it. A pooler gives the connection a process ID that is not the server
// session's.
func (d *Driver) listenConn(ctx context.Context) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, listenBound)
	defer cancel()
	c, err := d.connect(ctx)
	if err != nil {
		return nil, err
	}
	var pid uint32
	err = c.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	if err == nil && pid != c.PgConn().PID() {
		err = errPooled
	}
	if err == nil {
		_, err = c.Exec(ctx, "LISTEN "+pgx.Identifier{d.channel()}.Sanitize(), pgx.QueryExecModeSimpleProtocol)
	}
	if err != nil {
		hangUp(context.WithoutCancel(ctx), c)
		return nil, err
	}
	return c, nil
}

// await returns the next notification, or nil if none came in time.
func await(ctx context.Context, c *pgx.Conn, wait time.Duration) (*pgconn.Notification, error) {
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	n, err := c.WaitForNotification(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil && !c.IsClosed() {
		return nil, nil //nolint:nilnil // nothing came
	}
	return n, err
}

// notified reads a notification. Any unknown one, such as "r", means that something was granted.
func (d *Driver) notified(payload string) {
	var h driver.Hold
	var name string
	if g, ok := parseGrant(payload); ok {
		d.waiters.granted(g)
	} else if scan(payload, "l %s %d %x", &h.ID, &h.Token, &h.Name) {
		if d.waiters.lost(h.ID) && d.notifyLoss != nil {
			d.notifyLoss(h, errRemoved)
		}
	} else if scan(payload, "d %x", &name) {
		d.waiters.setDue(name, time.Now())
		signal(d.waiters.changed)
	} else {
		d.waiters.mayHaveMissed()
	}
}
