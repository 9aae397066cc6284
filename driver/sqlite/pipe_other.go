//go:build !(linux || darwin || dragonfly || freebsd || netbsd || openbsd)

package sqlite

import (
	"errors"
	"os"

	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// openPipe fails: there are no named pipes, and a process polls.
func openPipe(_, _ string) (*os.File, error) {
	return nil, errors.Join(sqlqueue.ErrNoNotices, errors.ErrUnsupported)
}

func notify(_, _ string) {}
