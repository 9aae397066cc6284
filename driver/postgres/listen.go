package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// listenBound bounds the connecting of a listener.
const listenBound = 10 * time.Second

// errPooled says that a connection does not end at the server's session. The sessions behind a pooler (PgBouncer) are
// shared by transactions of all its clients, and a LISTEN would stay on them.
var errPooled = fmt.Errorf("a pooler is on the way: %w", sqlqueue.ErrNoNotices)

// Listen implements sqlqueue.Notifier, on a connection outside the pool.
func (s *store) Listen(ctx context.Context, process int64, in *sqlqueue.Inbox) error {
	c, err := s.listenConn(ctx, s.w.channel+strconv.FormatInt(sqlqueue.Channel(process), 16))
	if err != nil {
		return err
	}
	defer hangUp(context.WithoutCancel(ctx), c)
	in.Ready()
	for {
		n, err := c.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		in.Text(n.Payload)
	}
}

// listenConn opens a connection and listens on it. A pooler gives the connection a process ID that is not the server
// session's.
func (s *store) listenConn(ctx context.Context, channel string) (*pgx.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, listenBound)
	defer cancel()
	c, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	var pid uint32
	err = c.QueryRow(ctx, "SELECT pg_backend_pid()", pgx.QueryExecModeSimpleProtocol).Scan(&pid)
	if err == nil && pid != c.PgConn().PID() {
		err = errPooled
	}
	if err == nil {
		_, err = c.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize(), pgx.QueryExecModeSimpleProtocol)
	}
	if err != nil {
		hangUp(context.WithoutCancel(ctx), c)
		return nil, err
	}
	return c, nil
}
