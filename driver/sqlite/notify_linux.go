package sqlite

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// openPipe makes a named pipe and opens it to read. Whoever may write to the
// database may write to the pipe.
func openPipe(db, path string) (*os.File, error) {
	st, err := os.Stat(db)
	if err != nil {
		return nil, err
	}
	perm, folder := st.Mode().Perm(), filepath.Dir(path)
	switch err := os.Mkdir(folder, 0o700); {
	case err == nil: // who may read may search
		err = os.Chmod(folder, perm|perm&0o444>>2)
		if err != nil {
			return nil, err
		}
	case !errors.Is(err, fs.ErrExist):
		return nil, err
	}
	removeStale(folder)
	if err := unix.Mkfifo(path, uint32(perm)); err != nil {
		return nil, err
	}
	_ = os.Chmod(path, perm) // what the umask took; without it others poll
	// To write, too: else every read would end when the last writer goes.
	pipe, err := os.OpenFile(path, os.O_RDWR|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, errors.Join(err, os.Remove(path))
	}
	return pipe, nil
}

// notify writes to a pipe, if anybody reads it.
func notify(path string) {
	if fd, err := writePipe(path); err == nil {
		_, _ = unix.Write(fd, []byte{'n'}) // if it is full, the reader has enough to read
		_ = unix.Close(fd)
	}
}

func writePipe(path string) (int, error) {
	return unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
}

// removeStale removes the pipes that no living process reads, unless they are so
// young that their process may be about to.
func removeStale(folder string) {
	entries, _ := os.ReadDir(folder)
	for _, e := range entries {
		st, err := e.Info()
		if err != nil || time.Since(st.ModTime()) < time.Minute || st.Mode().Type() != fs.ModeNamedPipe {
			continue
		}
		path := filepath.Join(folder, e.Name())
		fd, err := writePipe(path)
		switch {
		case err == nil:
			_ = unix.Close(fd)
		case errors.Is(err, unix.ENXIO):
			_ = os.Remove(path)
		}
	}
}
