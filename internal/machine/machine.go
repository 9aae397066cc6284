// Package machine lets the simulation stand in for the machine on which a driver that needs no server runs.
package machine

import (
	"context"
	"database/sql/driver"
	"io"
)

// A Machine is what package driver/sqlite uses of one.
type Machine interface {
	// Clock returns the time since the machine was booted, in nanoseconds.
	Clock() int64
	// Connector opens connections to a database of SQLite.
	Connector(dsn string) driver.Connector
	// Pipe makes a named pipe, and opens it for reading.
	Pipe(path string) (io.ReadWriteCloser, error)
	// Notify writes a line to a pipe, if somebody reads it.
	Notify(path, line string)
}

type key struct{}

// With is the context in which a driver is opened by URL that runs on m.
func With(ctx context.Context, m Machine) context.Context { return context.WithValue(ctx, key{}, m) }

// From returns the machine of such a context; ok is false if there is none, as always outside of the simulation.
func From(ctx context.Context) (m Machine, ok bool) {
	m, ok = ctx.Value(key{}).(Machine)
	return m, ok
}
