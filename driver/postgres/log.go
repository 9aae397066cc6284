package postgres

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// logTo makes connections log what pgx does not return as an error.
func logTo(l *slog.Logger, c *pgx.ConnConfig) {
	c.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) {
		level := slog.LevelInfo
		if n.SeverityUnlocalized == "WARNING" || n.Severity == "WARNING" {
			level = slog.LevelWarn
		}
		l.Log(context.Background(), level, "postgres: "+n.Message, "severity", n.Severity, "code", n.Code, "detail", n.Detail, "hint", n.Hint)
	}
	c.Tracer = connects{l}
}

// connects logs connections that failed. Pgx requires it to trace queries, too.
type connects struct{ l *slog.Logger }

var _ pgx.ConnectTracer = connects{}

func (connects) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return ctx
}

func (t connects) TraceConnectEnd(ctx context.Context, data pgx.TraceConnectEndData) {
	if data.Err != nil && ctx.Err() == nil { // the caller has not given up
		t.l.WarnContext(ctx, "postgres: a connection failed", "error", data.Err)
	}
}

func (connects) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (connects) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
