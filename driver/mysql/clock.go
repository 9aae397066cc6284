package mysql

import (
	"context"
	"database/sql"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A statement that takes a ticket carries the time until which it is to arrive, told by
// the database's clock: a request that the network held back for longer does
// nothing when it arrives. Nothing else rests on this reading of the clock, and no
// exclusion does.
//
// It also says which start of which server it is meant for: one that has lost commits, in a
// crash or as a replica that takes over, may have given their numbers before. So for each start of a
// server whoever is first begins an epoch: numbers go on from the clock of the server, in milliseconds, if they are
// not beyond it. Rows from before keep their numbers, and are not kept for the next ticket.

// arriveBound is how long a statement that takes a ticket may be on its way.
const arriveBound = 2 * time.Second

// A server is what a driver knows of the one that it writes to.
type server struct {
	ahead time.Duration // of the database's clock before that of this process
	start uint64        // which start of which server it is
	floor uint64        // the last number of a row before that
}

type clock struct {
	server atomic.Pointer[server] // nil: not known
}

// server returns what is known of the server, and asks if nothing is.
func (d *Driver) server(ctx context.Context) (server, error) {
	if s := d.clock.server.Load(); s != nil {
		return *s, nil
	}
	var s server
	err := insist(ctx, func() (err error) {
		s, err = d.readClock(ctx)
		return err
	})
	if number(err) == errRange {
		err = noAutocommit(err)
	}
	if err != nil {
		return s, err
	}
	var begun uint64
	err = d.query(ctx, d.w.render("epoch", values{}), func(rows *sql.Rows) error { return rows.Scan(&begun, &s.floor) })
	if err == nil && begun != s.start {
		s.floor, err = d.beginEpoch(ctx, s.start)
	}
	if err == nil {
		d.clock.server.Store(&s)
	}
	return s, err
}

func (d *Driver) readClock(ctx context.Context) (s server, err error) {
	began := time.Now()
	var micros int64
	err = d.queryOnce(ctx, d.w.render("clock", values{}), func(rows *sql.Rows) error { return rows.Scan(&micros, &s.start) })
	s.ahead = time.UnixMicro(micros).Sub(began)
	return s, err
}

// beginEpoch moves numbers to the clock, unless somebody else has done so since this server was started.
func (d *Driver) beginEpoch(ctx context.Context, start uint64) (floor uint64, err error) {
	err = d.transaction(ctx, func(c *sql.Conn) error {
		rows, err := c.QueryContext(ctx, d.w.render("epochlock", values{}))
		if err != nil {
			return err
		}
		var begun uint64
		err = each(rows, func(rows *sql.Rows) error { return rows.Scan(&begun, &floor) })
		if err != nil || begun == start {
			return err
		}
		floor, err = d.moveNumbers(ctx, c)
		return err
	})
	return floor, err
}

// moveNumbers is done in a transaction. It returns a number below all that will be given, and above all that were.
func (d *Driver) moveNumbers(ctx context.Context, c *sql.Conn) (floor uint64, err error) {
	v := values{inTx: true}
	for _, step := range []string{"epochclear", "epochclock", "epochclear", "epochfloor", "epochclear", "epochkept", "epochbegin"} {
		r, err := c.ExecContext(ctx, d.w.render(step, v))
		switch {
		case step == "epochclock" && number(err) == errDuplicate:
		case err != nil:
			return 0, err
		case step == "epochfloor":
			n, err := r.LastInsertId()
			if err != nil {
				return 0, err
			}
			v.floor = uint64(n) //nolint:gosec // counts from 1
		}
	}
	return v.floor, nil
}

// valuesOf are the values of a request that is about to be sent.
func (d *Driver) valuesOf(ctx context.Context, r driver.Request) (values, error) {
	s, err := d.server(ctx)
	now := time.Now()
	until := now.Add(arriveBound)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(until) {
		until = deadline
	}
	return values{
		name: r.Name, id: r.ID, owner: r.Owner, note: r.Note,
		shared: r.Shared, permits: r.Limit, ttl: r.TTL, life: d.opts.liveness,
		deadline: until.Add(s.ahead), until: until, server: s.start,
	}, err
}

// restart makes good what keeps a ticket from being taken at all: a clock that was
// set, a server that was started again or took over, or slots that are not there.
func (d *Driver) restart(ctx context.Context, try int) error {
	d.clock.server.Store(nil)
	if try == 0 {
		return nil
	}
	return d.fillSlots(ctx)
}
