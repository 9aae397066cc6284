package postgres

import (
	"context"
	"crypto/rand"
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
// missing there, and one behind a pooler in transaction mode hears nothing,
// which a notice to itself finds out.
const (
	listenIdle  = 30 * time.Second // runs on for so long after the last use
	probeWait   = 2 * time.Second
	listenFirst = 20 * time.Millisecond // between two connections
	listenMost  = time.Second
	deafWait    = time.Minute // before it is tried again where nothing was heard
)

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
		heard, err := d.listenOnce()
		d.line.mu.Lock()
		d.line.live = false
		d.line.mu.Unlock()
		signal(d.line.wake)
		switch {
		case err == nil: // idle
			return
		case !heard && time.Since(began) >= probeWait:
			delay = deafWait
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
func (d *Driver) listenOnce() (heard bool, err error) {
	ctx, cancel := context.WithCancel(d.ctx)
	defer cancel()
	select {
	case <-d.line.kick: // meant an older connection
	default:
	}
	open, cancelOpen := context.WithTimeout(ctx, 5*time.Second)
	c, err := d.connect(open)
	cancelOpen()
	if err != nil {
		return false, err
	}
	defer hangUp(c)
	d.work.Go(func() {
		select {
		case <-d.line.kick:
			cancel()
		case <-ctx.Done():
		}
	})
	hello := rand.Text()
	if err := d.probe(ctx, c, hello); err != nil {
		return false, err
	}
	for {
		wait := listenIdle
		if !heard {
			wait = probeWait
		}
		n, err := d.await(ctx, c, wait)
		switch {
		case err != nil:
			return heard, err
		case n == nil && !heard:
			return false, context.DeadlineExceeded
		case n == nil:
			if d.stopListening() {
				return true, nil
			}
		case n.Payload == "p "+hello:
			heard = true
			d.line.hears()
		default:
			d.notice(n.Payload)
		}
	}
}

// probe listens, and has the database send a notice by the way it is asked.
func (d *Driver) probe(ctx context.Context, c *pgx.Conn, hello string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	channel := d.channel()
	if _, err := c.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize(), pgx.QueryExecModeSimpleProtocol); err != nil {
		return err
	}
	return d.query(ctx, true, nil, nil, "SELECT pg_notify($1::text, $2::text)", channel, "p "+hello)
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
func hangUp(c *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
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

// notice takes a notification.
func (d *Driver) notice(payload string) {
	words := strings.Fields(payload)
	if g, ok := parseGrant(words); ok {
		d.line.granted(g)
		return
	}
	if h, ok := parseLoss(words); ok {
		if d.line.lost(h) && d.tell != nil {
			d.tell(h, driver.ErrLost)
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
