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
		idle := s.db.Stats().Idle
		useless, err := s.withOne(ctx, f)
		if !useless || ctx.Err() != nil || idle == 0 && tries > 0 || tries == uselessMost {
			return err
		}
	}
}

// withOne calls f with a connection, and discards the connection if it was of no use.
func (s *store) withOne(ctx context.Context, f func(context.Context, *sql.Conn) error) (useless bool, err error) {
	connected := false
	err = s.conns.Use(ctx, func(c *sql.Conn) error {
		connected = true
		began := time.Now()
		err := f(ctx, c)
		if err != nil && ctx.Err() != nil && time.Since(began) > staleAfter {
			s.idleStale.Store(true)
		}
		if useless = readOnly(err) || errors.Is(err, sqldriver.ErrBadConn); useless {
			discard(c)
		} else if code(err) == errNoProcedure { // without autocommit MySQL keeps the name locked, and nobody can create it
			_, _ = c.ExecContext(ctx, "ROLLBACK AND NO CHAIN NO RELEASE") // with completion_type=CHAIN a transaction would follow
		}
		return err
	})
	if !connected && err != nil {
		err = &notDone{hungUp(err)}
	}
	return useless, err
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

// pooled is how requests get their connections. While there is one beyond the pool's limit, the limit is raised.
func (s *store) pooled() *sqlqueue.Pool[*sql.Conn] {
	return sqlqueue.NewPool(sqlqueue.Pool[*sql.Conn]{
		Get: func(ctx context.Context) (*sql.Conn, func(), error) {
			c, err := s.db.Conn(ctx)
			return c, func() { _ = c.Close() }, err
		},
		Exhausted: func() bool {
			now := s.db.Stats()
			return now.MaxOpenConnections > 0 && now.InUse >= now.MaxOpenConnections
		},
		Open: func(ctx context.Context) (c *sql.Conn, err error) {
			raiseLimit(s.db, 1)
			defer func() { // also after a panic in the user's code
				if c == nil {
					raiseLimit(s.db, -1)
				}
			}()
			return s.db.Conn(ctx)
		},
		Close: func(c *sql.Conn) {
			raiseLimit(s.db, -1) // first, so that nobody else opens a connection in its stead
			discard(c)
		},
		IsAlive: func(c *sql.Conn) bool {
			return c.Raw(func(conn any) error {
				if v, ok := conn.(sqldriver.Validator); ok && !v.IsValid() {
					return sqldriver.ErrBadConn
				}
				return nil
			}) == nil
		},
	})
}

// limits is held while the limit of a pool is changed: drivers may share a pool.
var limits sync.Mutex

func raiseLimit(db *sql.DB, by int) {
	limits.Lock()
	defer limits.Unlock()
	if most := db.Stats().MaxOpenConnections; most > 0 {
		db.SetMaxOpenConns(max(1, most+by)) // it may have been changed meanwhile, and 0 is no limit
	}
}
