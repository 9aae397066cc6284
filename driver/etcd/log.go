package etcd

import (
	"context"
	"log/slog"

	"go.uber.org/zap/zapcore"
)

// slogCore passes to slog what etcd's client logs with zap.
type slogCore struct{ handler slog.Handler }

func (c slogCore) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), slogLevel(l))
}

func (c slogCore) With(fields []zapcore.Field) zapcore.Core {
	return slogCore{c.handler.WithAttrs(attrs(fields))}
}

func (c slogCore) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

func (c slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	r := slog.NewRecord(e.Time, slogLevel(e.Level), e.Message, 0)
	r.AddAttrs(attrs(fields)...)
	return c.handler.Handle(context.Background(), r)
}

func (slogCore) Sync() error { return nil }

// slogLevel returns slog's level for one of zap. zap's levels above error end the
// program, which a client must not do, so they become errors.
func slogLevel(l zapcore.Level) slog.Level {
	switch l {
	case zapcore.DebugLevel:
		return slog.LevelDebug
	case zapcore.InfoLevel:
		return slog.LevelInfo
	case zapcore.WarnLevel:
		return slog.LevelWarn
	default:
		return slog.LevelError
	}
}

func attrs(fields []zapcore.Field) []slog.Attr {
	e := zapcore.NewMapObjectEncoder()
	list := make([]slog.Attr, 0, len(fields))
	for _, f := range fields {
		f.AddTo(e)
		if v, ok := e.Fields[f.Key]; ok {
			list = append(list, slog.Any(f.Key, v))
		}
	}
	return list
}
