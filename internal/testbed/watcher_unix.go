//go:build unix

package testbed

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// watcherScript outlives this process by a moment and cleans up after it. Its
// standard input is a pipe whose other end only this process has, so it learns
// of this process's end however that comes, SIGKILL included. (PDEATHSIG is no
// help: it is sent when the starting *thread* ends, and does not reach a
// server's own children.)
//
//go:embed watcher.sh
var watcherScript string

var watch watcher

// A watcher is this process's end of the pipe to the script.
type watcher struct {
	once    sync.Once
	disk    string // holds the data folders of durable servers; the script deletes it
	scratch string // those of the others: in memory, if there is room
	err     error

	mu   sync.Mutex
	pipe *os.File
}

// folder returns the folder for the data of this process's servers, having started the
// watcher.
func (w *watcher) folder(durable bool) (string, error) {
	w.once.Do(func() { w.err = w.start() })
	if durable {
		return w.disk, w.err
	}
	return w.scratch, w.err
}

func (w *watcher) start() (err error) {
	if w.disk, err = newFolder(""); err != nil {
		return err
	}
	w.scratch = w.disk
	if memory := memoryFolder(); memory != "" {
		if w.scratch, err = newFolder(memory); err != nil {
			return err
		}
	}
	r, pipe, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", watcherScript, "testbed-watcher", w.disk, w.scratch)
	cmd.Dir, cmd.Stdin = "/", r
	// Its own group: Ctrl-C at the terminal must not reach it before its work is done.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the watcher: %w", err)
	}
	w.pipe = pipe
	return nil
}

// newFolder makes a folder that a server that runs as another user can pass through.
func newFolder(in string) (string, error) {
	dir, err := os.MkdirTemp(in, "locker-testbed-")
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o711) //nolint:gosec // that is what it is for
}

// send sends the script one line.
func (w *watcher) send(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pipe != nil {
		_, _ = fmt.Fprintf(w.pipe, format+"\n", args...)
	}
}
