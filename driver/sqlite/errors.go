package sqlite

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"

	sqlite "modernc.org/sqlite" // the database, also registered as "sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/lockerproject/locker/driver"
)

var errOtherBoot = errors.New("the file has been taken over since the machine was booted, by another machine or kernel that shares it")

// code returns the primary result code of an error of SQLite, or 0.
func code(err error) int {
	if e := (*sqlite.Error)(nil); errors.As(err, &e) {
		return e.Code() & 0xff
	}
	return 0
}

// isBusy reports whether another process had the file locked, so that nothing was done.
func isBusy(err error) bool {
	c := code(err)
	return c == codes.SQLITE_BUSY || c == codes.SQLITE_LOCKED || c == codes.SQLITE_PROTOCOL
}

// unavailable are the errors that refuse everybody (D14), each with what people need to know about it.
var unavailable = map[int]string{
	codes.SQLITE_BUSY: "", codes.SQLITE_LOCKED: "", codes.SQLITE_PROTOCOL: "",
	codes.SQLITE_FULL:    "the disk is full",
	codes.SQLITE_IOERR:   "the disk, or the file system, fails",
	codes.SQLITE_NOMEM:   "there is no memory left",
	codes.SQLITE_CORRUPT: "the file is damaged: stop the programs that use it and remove it; fencing tokens begin again",
	codes.SQLITE_NOTADB:  "the file is not an SQLite database, or is damaged",
}

// refused are the errors that refuse this user.
var refused = map[int]string{
	codes.SQLITE_READONLY: "this user may not write to the file or to its folder",
	codes.SQLITE_CANTOPEN: "this user may not open the file, or write to its folder",
	codes.SQLITE_PERM:     "this user may not open the file, or write to its folder",
	codes.SQLITE_AUTH:     "this user may not open the file, or write to its folder",
}

// cannotOpen is SQLite's error with the reason of the system. SQLite's text has another: "out of memory".
type cannotOpen struct{ reason, err error }

func (e *cannotOpen) Error() string   { return e.reason.Error() }
func (e *cannotOpen) Unwrap() []error { return []error{e.err, e.reason} }

// explain adds the path and the explanation to an error of SQLite.
func (s *store) explain(err error) error {
	c := code(err)
	if c == 0 {
		return err
	}
	if c == codes.SQLITE_CANTOPEN {
		reason := cmp.Or(mayOpen(s.file), mayWrite(filepath.Dir(s.file)), errors.New("it cannot be opened"))
		err = &cannotOpen{reason, err}
	}
	if text := cmp.Or(unavailable[c], refused[c]); text != "" {
		err = fmt.Errorf("%s: %w", text, err)
	}
	err = fmt.Errorf("%s: %w", s.path, err)
	if _, ok := unavailable[c]; ok && (c != codes.SQLITE_NOTADB || s.isOpen.Load()) { // else it is another file than was meant
		err = driver.Unavailable(err)
	}
	return err
}
