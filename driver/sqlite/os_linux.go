package sqlite

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sys/unix"
)

// clock returns the time since the machine was booted, in nanoseconds. It counts time in which the machine was
// suspended, and cannot be set.
func clock() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) // cannot fail on a kernel that runs Go
	return ts.Nano()
}

var boottimeOffset = regexp.MustCompile(`(?m)^boottime\s+(-?\d+)\s+(\d+)`)

// bootID returns the ID of the present boot of the kernel, which all containers of a machine share.
func bootID() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return "", fmt.Errorf("reading the boot ID of the kernel: %w", err)
	}
	// A process in a time namespace (time_namespaces(7)) may have another clock. The usual container engines do
	// not make one.
	offsets, _ := os.ReadFile("/proc/self/timens_offsets")
	if m := boottimeOffset.FindSubmatch(offsets); m != nil && (string(m[1]) != "0" || string(m[2]) != "0") {
		return "", errors.New("the clock of this process is not the machine's: it is in a time namespace with an offset")
	}
	return strings.TrimSpace(string(b)), nil
}

// networked names the file systems that several machines may share. SQLite cannot rely on their locks, nor on
// shared memory.
var networked = map[int64]string{
	0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB2", 0x01021997: "9P",
	0x00c36400: "Ceph", 0x5346414f: "AFS", 0x6b414653: "AFS", 0x0bd00bd0: "Lustre",
	0x01161970: "GFS2", 0x7461636f: "OCFS2", 0x47504653: "GPFS", 0x73757245: "Coda",
}

// checkFileSystem refuses a file on which SQLite's locks would not work.
func checkFileSystem(path string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(path), &st); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if name, ok := networked[int64(st.Type)&0xffffffff]; ok { //nolint:unconvert // its type differs between machines
		return fmt.Errorf("%s is on a network file system (%s): want a disk of this machine", path, name)
	}
	var file unix.Statx_t
	_ = unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_NLINK, &file) // there may be none yet
	switch {
	case file.Nlink > 1:
		return fmt.Errorf("%s has %d hard links: programs that open it under different names would not see each other's locks", path, file.Nlink)
	case file.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0:
		return fmt.Errorf("%s is mounted by itself: mount its folder, where SQLite keeps the latest locks in files beside it", path)
	}
	return nil
}

// fileID identifies a file. It is compared in each transaction: os.FileInfo takes twice the time.
type fileID struct{ device, inode uint64 }

func idOf(path string) (fileID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return fileID{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return fileID{uint64(st.Dev), st.Ino}, nil //nolint:unconvert // its type differs between machines
}

func (id fileID) same(other fileID) bool { return id == other }

// mayOpen fails if this user may not read and write a file. It does not open it: see making.
func mayOpen(path string) error { return access(path, unix.R_OK|unix.W_OK) }

// mayWrite fails if this user may not make files in a folder.
func mayWrite(folder string) error { return access(folder, unix.W_OK|unix.X_OK) }

func access(path string, mode uint32) error {
	if err := unix.Faccessat(unix.AT_FDCWD, path, mode, unix.AT_EACCESS); err != nil {
		return &fs.PathError{Op: "access", Path: path, Err: err}
	}
	return nil
}
