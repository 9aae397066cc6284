package sqlite

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

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
	var file unix.Stat_t
	if err := unix.Stat(path, &file); err == nil && file.Nlink > 1 {
		return fmt.Errorf("%s has %d hard links: programs that open it under different names would not see each other's locks", path, file.Nlink)
	}
	return nil
}

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

// openPipe makes a named pipe with the mode of the database, and opens it for reading. The folder may be another user's,
// if a group shares the database: what lies there is used only if it is a folder, and a pipe.
func openPipe(db, path string) (*os.File, error) {
	st, err := os.Stat(db)
	if err != nil {
		return nil, err
	}
	perm, folder := st.Mode().Perm(), filepath.Dir(path)
	switch err := os.Mkdir(folder, 0o700); {
	case err == nil:
		if err := os.Chmod(folder, perm|perm&0o444>>2); err != nil { // search where read
			return nil, err
		}
	case !errors.Is(err, fs.ErrExist):
		return nil, err
	}
	if st, err := os.Lstat(folder); err != nil || !st.IsDir() {
		return nil, cmp.Or(err, fmt.Errorf("%s is not a folder", folder))
	}
	removeStalePipes(folder)
	if err := unix.Mkfifo(path, uint32(perm)); err != nil {
		return nil, err
	}
	// Open it for writing too: otherwise reads end when the last writer closes.
	pipe, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	if st, err := pipe.Stat(); err != nil || st.Mode().Type() != fs.ModeNamedPipe {
		return nil, errors.Join(fmt.Errorf("%s is not a pipe", path), err, pipe.Close())
	}
	_ = pipe.Chmod(perm) // in spite of the umask; if it fails, other users poll
	return pipe, nil
}

// notify writes a byte to a pipe, if a process reads it.
func notify(path string) {
	if fd, err := openForWriting(path); err == nil {
		_, _ = unix.Write(fd, []byte{'n'}) // if the pipe is full, its reader is notified already
		_ = unix.Close(fd)
	}
}

func openForWriting(path string) (int, error) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return -1, errors.Join(fmt.Errorf("%s is not a pipe", path), err, unix.Close(fd))
	}
	return fd, nil
}

// removeStalePipes removes the pipes that no process reads. It leaves those of the last minute, whose process
// may be about to open them.
func removeStalePipes(folder string) {
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		st, err := e.Info()
		if err != nil || time.Since(st.ModTime()) < time.Minute || st.Mode().Type() != fs.ModeNamedPipe {
			continue
		}
		path := filepath.Join(folder, e.Name())
		fd, err := openForWriting(path)
		switch {
		case err == nil:
			_ = unix.Close(fd)
		case errors.Is(err, unix.ENXIO):
			_ = os.Remove(path)
		}
	}
}
