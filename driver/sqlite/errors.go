package sqlite

import (
	"errors"
	"fmt"

	sqlite "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/lockerproject/locker/driver"
)

var (
	errOtherVersion = errors.New("the file has a schema of another version of locker")
	errOtherBoot    = errors.New("the file has been taken over since the machine was booted, by another machine or kernel that shares it")
	errBroken       = fmt.Errorf("%w: the ticket was broken", driver.ErrLost)
)

// code is the primary result code of an error of SQLite, and 0 of others.
func code(err error) int {
	var e *sqlite.Error
	if errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// isBusy tells whether another process had the file locked: nothing was done.
func isBusy(err error) bool {
	c := code(err)
	return c == codes.SQLITE_BUSY || c == codes.SQLITE_LOCKED || c == codes.SQLITE_PROTOCOL
}

// remedies are what people can do about errors that refuse everybody.
var remedies = map[int]string{
	codes.SQLITE_BUSY: "", codes.SQLITE_LOCKED: "", codes.SQLITE_PROTOCOL: "",
	codes.SQLITE_FULL:    "the disk is full",
	codes.SQLITE_IOERR:   "the disk, or the file system, fails",
	codes.SQLITE_NOMEM:   "there is no memory left",
	codes.SQLITE_CORRUPT: "the file is damaged: stop the programs that use it, remove it, and fencing tokens begin again",
	codes.SQLITE_NOTADB:  "the file is not an SQLite database, or is damaged",
}

// explain says what to do about an error of SQLite, and marks those that mean that
// nobody can use the file (D14).
func (s *store) explain(err error) error {
	switch c := code(err); c {
	case 0:
		return err
	case codes.SQLITE_READONLY:
		return fmt.Errorf("%s: this user may not write to the file or to its folder: %w", s.path, err)
	case codes.SQLITE_CANTOPEN, codes.SQLITE_PERM, codes.SQLITE_AUTH:
		return fmt.Errorf("%s: this user may not open the file, or write to its folder: %w", s.path, err)
	default:
		remedy, known := remedies[c]
		if remedy != "" {
			err = fmt.Errorf("%s: %s: %w", s.path, remedy, err)
		} else {
			err = fmt.Errorf("%s: %w", s.path, err)
		}
		if known {
			err = driver.Unavailable(err)
		}
		return err
	}
}
