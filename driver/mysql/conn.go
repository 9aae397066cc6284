package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

const (
	// staleAfter is how long a request goes unanswered before the pool's idle
	// connections are considered broken.
	staleAfter = 500 * time.Millisecond

	// uselessMost is how many connections in a row may be of no use before a request
	// fails. Nothing was done on them.
	uselessMost = 100
)

// with calls f with a connection. When the server has not executed the request, because
// the connection had ended or the server is read only, as a demoted primary is, with
// discards the connection and tries the next, up to a new one. Requests that are under way end with Close.
func (s *store) with(caller context.Context, f func(context.Context, *sql.Conn) error) error {
	ctx, cancel := context.WithCancel(caller)
	defer cancel()
	stop := context.AfterFunc(s.closed, cancel)
	defer stop()
	if s.idleStale.Load() && s.idleStale.Swap(false) {
		s.discardIdle(ctx)
	}
	for tries := 0; ; tries++ {
		stats := s.db.Stats()
		c, free, err := s.conn(ctx, stats)
		if err != nil {
			return &notDone{hungUp(err)}
		}
		began := time.Now()
		err = f(ctx, c)
		if err != nil && ctx.Err() != nil && time.Since(began) > staleAfter {
			s.idleStale.Store(true)
		}
		useless := readOnly(err) || errors.Is(err, sqldriver.ErrBadConn)
		if useless {
			discard(c)
		} else if code(err) == errNoProcedure { // without autocommit MySQL keeps the name locked, and nobody can create it
			_, _ = c.ExecContext(ctx, "ROLLBACK")
		}
		free()
		if !useless || ctx.Err() != nil || stats.Idle == 0 && tries > 0 || tries == uselessMost {
			return err
		}
	}
}

// hungUp makes a failed dial of the client's error for a server that hangs up during the handshake: it is not exported.
func hungUp(err error) error {
	if err.Error() == "bad connection" {
		return &net.OpError{Op: "dial", Net: "mysql", Err: err}
	}
	return err
}

// discardIdle closes the connections that nobody uses. When a request was not answered,
// the network may have been cut, and some firewalls then forget all connections: each
// of them would cost a request its time.
func (s *store) discardIdle(ctx context.Context) {
	for range s.db.Stats().Idle {
		c, err := s.db.Conn(ctx)
		if err != nil {
			return
		}
		discard(c)
	}
}

// discard closes a connection instead of returning it to the pool.
func discard(c *sql.Conn) {
	_ = c.Raw(func(any) error { return sqldriver.ErrBadConn }) // closes it, and returns that error
	_ = c.Close()                                              // it is closed already
}

func exhausted(s sql.DBStats) bool {
	return s.MaxOpenConnections > 0 && s.InUse >= s.MaxOpenConnections
}

// spare marks the context of a sweep, which waits for a connection of the pool: the one beyond its limit is left to what has to be
// done in time.
func spare(ctx context.Context) context.Context { return context.WithValue(ctx, spareKey{}, true) }

type spareKey struct{}

// conn returns a connection, and the function that returns it to the pool.
func (s *store) conn(ctx context.Context, stats sql.DBStats) (*sql.Conn, func(), error) {
	wait, cancel := ctx, func() {}
	if exhausted(stats) && ctx.Value(spareKey{}) == nil {
		wait, cancel = context.WithTimeout(ctx, sqlqueue.Patience(ctx))
	}
	c, err := s.db.Conn(wait)
	tooLong := err != nil && wait.Err() != nil && ctx.Err() == nil
	cancel()
	if tooLong {
		return s.extraConn(ctx)
	}
	return c, func() { _ = c.Close() }, err
}

// extraConn opens one connection beyond the pool's limit, which is raised until the
// connection is closed.
func (s *store) extraConn(ctx context.Context) (*sql.Conn, func(), error) {
	select {
	case s.extra <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	raiseLimit(s.db, 1)
	c, err := s.db.Conn(ctx)
	if err != nil {
		raiseLimit(s.db, -1)
		<-s.extra
		return nil, nil, err
	}
	return c, func() {
		raiseLimit(s.db, -1) // first, so that nobody else opens a connection in its stead
		discard(c)
		<-s.extra
	}, nil
}

// limits is held while the limit of a pool is changed: drivers may share a pool.
var limits sync.Mutex

func raiseLimit(db *sql.DB, by int) {
	limits.Lock()
	defer limits.Unlock()
	if most := db.Stats().MaxOpenConnections; most > 0 {
		db.SetMaxOpenConns(most + by)
	}
}
