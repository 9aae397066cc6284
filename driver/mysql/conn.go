package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"sync"
	"time"
)

// The pool is the user's, whose work may hold all of its connections, under locks that are to be
// renewed meanwhile. A request that gets none within patience goes over one
// connection beside them: the driver raises the pool's limit by one for it, and
// lowers it again when that connection has not been used for sideIdle.
const (
	patience = 200 * time.Millisecond
	sideIdle = 5 * time.Second
)

// patienceOf leaves most of the time that ctx gives to the request: the renewal
// of a short lease has little.
func patienceOf(ctx context.Context) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return min(patience, time.Until(end)/4)
	}
	return patience
}

// side is the connection beside the pool.
type side struct {
	turn chan struct{} // of one: held by whoever uses the rest

	conn    *sql.Conn // nil: none is open
	limit   int       // the pool's limit as it was raised; 0: it was not
	used    time.Time
	watched bool
}

// limits is held while the limit of a pool is changed: drivers may share one.
var limits sync.Mutex

// staleMost is how many connections in a row may turn out to be of no use before the request fails. Nothing
// was done on them.
const staleMost = 100

// suspectAfter is how long a request is not answered before the pool's idle connections are not trusted any more.
const suspectAfter = 500 * time.Millisecond

// with runs f on a connection. When the server has not done what was asked there, because the connection had
// ended or the server only reads, as a demoted primary does, it gives up the connection and
// tries the next, up to one that is new.
func (d *Driver) with(ctx context.Context, f func(*sql.Conn) error) error {
	if d.suspect.Load() && d.suspect.Swap(false) {
		d.closeIdle(ctx)
	}
	for tries := 0; ; tries++ {
		s := d.db.Stats()
		c, free, err := d.conn(ctx, s)
		if err != nil {
			return err
		}
		began := time.Now()
		err = f(c)
		if err != nil && ctx.Err() != nil && time.Since(began) > suspectAfter {
			d.suspect.Store(true)
		}
		useless := readOnly(err) || errors.Is(err, sqldriver.ErrBadConn)
		if useless {
			giveUp(c)
		}
		free()
		if !useless || ctx.Err() != nil || s.Idle == 0 && tries > 0 || tries == staleMost {
			return err
		}
	}
}

// closeIdle closes the connections that nobody uses. When one was not answered, the way to the server may have been
// cut, and some firewalls then forget the others, too: each would cost a request its time.
func (d *Driver) closeIdle(ctx context.Context) {
	for range d.db.Stats().Idle {
		c, err := d.db.Conn(ctx)
		if err != nil {
			return
		}
		giveUp(c)
		_ = c.Close() // it is
	}
}

// giveUp closes a connection instead of giving it back.
func giveUp(c *sql.Conn) {
	_ = c.Raw(func(any) error { return sqldriver.ErrBadConn }) // that is what it returns
}

// conn returns a connection of the pool, or the one beside it, and what gives it back.
func (d *Driver) conn(ctx context.Context, s sql.DBStats) (*sql.Conn, func(), error) {
	wait, cancel := ctx, func() {}
	if s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections {
		wait, cancel = context.WithTimeout(ctx, patienceOf(ctx))
	}
	c, err := d.db.Conn(wait)
	tooLong := err != nil && wait.Err() != nil && ctx.Err() == nil
	cancel()
	if tooLong {
		return d.beside(ctx)
	}
	return c, func() { _ = c.Close() }, err
}

// beside is conn for the connection beside the pool.
func (d *Driver) beside(ctx context.Context) (*sql.Conn, func(), error) {
	x := &d.side
	select {
	case x.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	if x.conn == nil {
		if err := d.openSide(ctx); err != nil {
			<-x.turn
			return nil, nil, err
		}
	}
	return x.conn, func() {
		x.used = time.Now()
		if x.conn.Raw(valid) != nil || d.ctx.Err() != nil {
			d.closeSide()
		}
		<-x.turn
	}, nil
}

// valid is ErrBadConn if a connection has ended.
func valid(c any) error {
	if v, ok := c.(sqldriver.Validator); ok && !v.IsValid() {
		return sqldriver.ErrBadConn
	}
	return nil
}

// openSide opens the connection beside the pool. With its turn.
func (d *Driver) openSide(ctx context.Context) error {
	x := &d.side
	limits.Lock()
	if most := d.db.Stats().MaxOpenConnections; most > 0 {
		x.limit = most + 1
		d.db.SetMaxOpenConns(x.limit)
	}
	limits.Unlock()
	c, err := d.db.Conn(ctx)
	if err != nil {
		d.lowerLimit()
		return err
	}
	x.conn = c
	d.watchSide()
	return nil
}

// closeSide closes it. With its turn.
func (d *Driver) closeSide() {
	giveUp(d.side.conn)
	d.side.conn = nil
	d.lowerLimit()
}

// lowerLimit takes back that the limit was raised, unless somebody else has set it since.
func (d *Driver) lowerLimit() {
	x := &d.side
	limits.Lock()
	defer limits.Unlock()
	if x.limit > 0 && d.db.Stats().MaxOpenConnections == x.limit {
		d.db.SetMaxOpenConns(x.limit - 1)
	}
	x.limit = 0
}

// watchSide starts what closes it when nobody has used it for a while. With its turn.
func (d *Driver) watchSide() {
	x := &d.side
	if x.watched {
		return
	}
	x.watched = d.begin(func() {
		t := time.NewTicker(sideIdle / 2)
		defer t.Stop()
		for {
			select {
			case <-t.C:
			case <-d.ctx.Done():
			}
			select {
			case x.turn <- struct{}{}:
			case <-time.After(closeBound): // whoever has it closes it, if the driver is closed
				if d.ctx.Err() != nil {
					return
				}
				continue
			}
			if x.conn != nil && (time.Since(x.used) > sideIdle || d.ctx.Err() != nil) {
				d.closeSide()
			}
			x.watched = x.conn != nil
			more := x.watched
			<-x.turn
			if !more {
				return
			}
		}
	})
}
