//go:build linux || darwin || dragonfly || freebsd || netbsd || openbsd

package sqlite

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// openPipe makes a named pipe with the mode of the database, and opens it for reading. The folder may be another user's,
// if a group shares the database: what lies there is used only if it is a folder, and a pipe.
func openPipe(db, path string) (io.ReadWriteCloser, error) {
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
	pipe, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	if st, err := pipe.Stat(); err != nil || st.Mode().Type() != fs.ModeNamedPipe {
		return nil, errors.Join(fmt.Errorf("%s is not a pipe", path), err, pipe.Close())
	}
	_ = pipe.Chmod(perm) // in spite of the umask; if it fails, other users poll
	return pipe, nil
}

// notify writes a line to a pipe, if a process reads it and the pipe is not full.
func notify(path, line string) {
	if fd, err := openForWriting(path); err == nil {
		_, _ = unix.Write(fd, []byte(line))
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
