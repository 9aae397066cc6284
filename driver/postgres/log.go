package postgres

import (
	"context"
	"log/slog"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/tracelog"
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
	c.Tracer = &tracelog.TraceLog{
		LogLevel: tracelog.LogLevelError,
		Logger: tracelog.LoggerFunc(func(ctx context.Context, _ tracelog.LogLevel, what string, data map[string]any) {
			if what == "Connect" && ctx.Err() == nil { // the caller has not given up
				l.WarnContext(ctx, "postgres: a connection failed", "error", data["err"])
			}
		}),
	}
}
