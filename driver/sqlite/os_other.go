//go:build !linux

package sqlite

import (
	"os"
	"time"
)

// Other systems have less than os_linux.go offers: see the package comment.

// clock returns the wall clock in nanoseconds.
func clock() int64 { return time.Now().UnixNano() }

// bootID is constant: after a reboot leases end by the clock too.
func bootID() (string, error) { return "unknown", nil }

// checkFileSystem accepts every file system.
func checkFileSystem(string) error { return nil }

// fileID identifies a file.
type fileID struct{ os.FileInfo }

func idOf(path string) (fileID, error) {
	st, err := os.Stat(path)
	return fileID{st}, err
}

func (id fileID) same(other fileID) bool { return os.SameFile(id.FileInfo, other.FileInfo) }

// mayOpen and mayWrite leave it to the system, when it is done.
func mayOpen(string) error  { return nil }
func mayWrite(string) error { return nil }
