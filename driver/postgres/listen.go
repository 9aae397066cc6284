package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockerproject/locker/driver"
)

// The listener is the goroutine that has the one connection on which this
// process is told of grants and losses. It runs while something is held or
// waited for. The connection is its own: one of the user's pool would be
// missing there. It listens only on a session of the server that is its own: what a
// pooler (PgBouncer) stands for is shared out with each transaction, and a LISTEN would
// stay on it for others.
const (
	listenIdle   = 30 * time.Second      // runs on for so long after the last use
	listenBound  = 10 * time.Second      // for connecting
	listenFirst  = 20 * time.Millisecond // between two connections
	listenMost   = time.Second
	listenPooled = time.Minute // before it is tried again where there is a pooler
)

// errPooled says that a connection does not end at the server's session.
var errPooled = errors.New("a pooler stands between")

// channel is the name of this driver's notification channel.
func (d *Driver) channel() string {
	return d.w.channel + strconv.FormatInt(d.line.current()/incarnations, 16)
}

// listenSoon starts the listener unless it runs.
func (d *Driver) listenSoon() {
	if !d.opts.listen {
		return
	}
	l := &d.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listening || d.ctx.Err() != nil {
		return
	}
	l.listening = true
	d.work.Go(d.listen)
}

func (d *Driver) listen() {
	for delay := listenFirst; ; delay = min(2*delay, listenMost) {
		began := time.Now()
		err := d.listenOnce()
		d.line.mu.Lock()
		heard := d.line.live
		d.line.live = false
		d.line.mu.Unlock()
		signal(d.line.wake)
		switch {
		case err == nil: // idle
			return
		case errors.Is(err, errPooled):
			delay = listenPooled
		case heard && time.Since(began) > time.Second:
			delay = listenFirst
		}
		if !d.pause(d.ctx, delay) || d.stopListening() {
			return
		}
	}
}

// stopListening reports whether nothing was held or waited for in a while.
func (d *Driver) stopListening() bool {
	l := &d.line
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.held)+len(l.waiters) > 0 || time.Since(l.used) < listenIdle {
		return false
	}
	l.listening, l.live = false, false
	return true
}

// listenOnce listens on one connection until it breaks, or returns nil when
// nothing was held or waited for in a while.
func (d *Driver) listenOnce() error {
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	select {
	case <-d.line.kick: // meant an older connection
	default:
	}
	c, err := d.listenConn(ctx)
	if err != nil {
		return err
	}
	defer hangUp(context.WithoutCancel(ctx), c)
	d.work.Go(func() {
		select {
		case <-d.line.kick:
			cancel()
		case <-ctx.Done():
		}
	})
	d.line.hears()
	for {
		n, err := d.await(ctx, c, listenIdle)
		switch {
		case err != nil:
			return err
		case n != nil:
			d.notice(n.Payload)
		case d.stopListening():
			return nil
		}
	}
}

// listenConn opens a connection, and listens on it. That it ends at the session of the
// server is told by the number of that session: a pooler gives one of its own.
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

// await returns the next notification, or nil when none came in time.
func (d *Driver) await(ctx context.Context, c *pgx.Conn, wait time.Duration) (*pgconn.Notification, error) {
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	n, err := c.WaitForNotification(bounded)
	if err != nil && bounded.Err() != nil && ctx.Err() == nil && !c.IsClosed() {
		return nil, nil //nolint:nilnil // nothing came
	}
	return n, err
}

// hangUp closes a connection without waiting for a server that does not answer.
func hangUp(ctx context.Context, c *pgx.Conn) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_ = c.Close(ctx)
}

// hears says that news arrive by themselves from now on; some may have been
// missed before.
func (l *line) hears() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.live, l.reread = true, true
	signal(l.wake)
}

// errRemoved is why a lock is lost whose ticket somebody has broken.
var errRemoved = fmt.Errorf("%w: the ticket was removed from the queue", driver.ErrLost)

// notice takes a notification.
func (d *Driver) notice(payload string) {
	words := strings.Fields(payload)
	if g, ok := parseGrant(words); ok {
		d.line.granted(g)
		return
	}
	if h, ok := parseLoss(words); ok {
		if d.line.lost(h) && d.tell != nil {
			d.tell(h, errRemoved)
		}
		return
	}
	if name, ok := parseDue(words); ok {
		d.line.again(name, time.Now())
		signal(d.line.wake)
		return
	}
	d.line.missed() // "r", or something of a later version
}
