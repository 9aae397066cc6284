package main

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/sqlite"
)

// Requests are not counted: there is no server that would get any.
var sqliteStore = store{name: "sqlite", title: "sqlite, one file on this machine", subjects: func(tb *bed) []subject {
	dir, err := os.MkdirTemp("", "bench-sqlite-")
	tb.check(err)
	tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	return []subject{
		{name: "raw insert + delete", uncontended: true, open: func(tb *bed, _ *atomic.Int64) client {
			db, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "raw.db")+
				"?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_txlock=immediate")
			tb.check(err)
			db.SetMaxOpenConns(1)
			_, err = db.ExecContext(context.Background(), "CREATE TABLE IF NOT EXISTS raw (name TEXT PRIMARY KEY)")
			tb.check(err)
			return sqlRaw{db}
		}},
		{name: "locker", uncontended: true, contended: true, shared: true, held: true, waiting: true, most: 16, open: func(tb *bed, _ *atomic.Int64) client {
			d, err := sqlite.New(filepath.Join(dir, "locks.db"))
			tb.check(err)
			return ours{locker.New(d)}
		}},
		{name: "flock(2), neither queue nor token nor lease", uncontended: true, contended: true, most: 16, open: func(*bed, *atomic.Int64) client {
			return fileLock(dir)
		}},
	}
}}

// fileLock is a folder of files that are opened for each lock, as flock(1) does.
type fileLock string

func (f fileLock) acquire(_ context.Context, name string) (func(context.Context) error, error) {
	fd, err := syscall.Open(filepath.Join(string(f), name+".lock"), syscall.O_CREAT|syscall.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	for err = syscall.EINTR; errors.Is(err, syscall.EINTR); {
		err = syscall.Flock(fd, syscall.LOCK_EX)
	}
	return func(context.Context) error { return syscall.Close(fd) }, err
}

func (fileLock) close() {}
