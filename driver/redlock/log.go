package redlock

import (
	"log/slog"

	"github.com/lockerproject/locker/driver/internal/redisline"
)

// LogTo has go-redis log to l, or nowhere when l is nil. It is no Option, because
// go-redis has one logger for the whole process, which unless it is set writes to
// standard error what connections have failed: drivers return these errors and do not
// touch it, since it is the program's, and other clients of the program log there too.
// Call it once, before clients are made.
func LogTo(l *slog.Logger) { redisline.LogTo(l) }
