//go:build !(linux || darwin || dragonfly || freebsd || netbsd || openbsd)

package sqlite

import (
	"errors"
	"io"

	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// openPipe fails: there are no named pipes, and a process polls.
func openPipe(_, _ string) (io.ReadWriteCloser, error) {
	return nil, errors.Join(sqlqueue.ErrNoNotices, errors.ErrUnsupported)
}

func notify(_, _ string) {}
