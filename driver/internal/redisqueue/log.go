package redisqueue

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/redis/go-redis/v9"
)

// LogTo sets the logger of go-redis, which is one for the whole process. With nil,
// go-redis logs nothing.
func LogTo(l *slog.Logger) { redis.SetLogger(clientLogger{l}) }

type clientLogger struct{ to *slog.Logger }

// Printf implements the logger of go-redis, which logs connections that failed.
func (l clientLogger) Printf(ctx context.Context, format string, v ...any) {
	if l.to != nil {
		l.to.WarnContext(ctx, fmt.Sprintf(format, v...))
	}
}
