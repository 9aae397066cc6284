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
	once sync.Once
	base string // holds the data folders; the script deletes it
	err  error

	mu   sync.Mutex
	pipe *os.File
}

// folder returns the folder for all data of this process, having started the
// watcher.
func (w *watcher) folder() (string, error) {
	w.once.Do(func() { w.err = w.start() })
	return w.base, w.err
}

func (w *watcher) start() error {
	base, err := os.MkdirTemp("", "locker-testbed-")
	if err != nil {
		return err
	}
	// A server that runs as another user must be able to pass through.
	if err := os.Chmod(base, 0o711); err != nil {
		return err
	}
	r, pipe, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	cmd := exec.Command("/bin/sh", "-c", watcherScript, "testbed-watcher", base)
	cmd.Dir, cmd.Stdin = "/", r
	// Its own group: Ctrl-C at the terminal must not reach it before its work is done.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the watcher: %w", err)
	}
	w.base, w.pipe = base, pipe
	return nil
}

// send sends the script one line.
func (w *watcher) send(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pipe != nil {
		_, _ = fmt.Fprintf(w.pipe, format+"\n", args...)
	}
}
