package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"time"
)

// pipeFolder is where the named pipes of those who use the database at path lie.
func pipeFolder(path string) string { return path + "-notify" }

// listener is where other processes notify this one: a named pipe, into which they
// write a byte. What the byte is about stands in the database, so a full pipe loses nothing.
type listener struct {
	path string
	pipe *os.File // nil where there are none: then the process polls
	kick chan struct{}
}

func listen(db, process string) *listener {
	l := &listener{path: filepath.Join(pipeFolder(db), process), kick: make(chan struct{}, 1)}
	l.pipe, _ = openPipe(db, l.path)
	return l
}

// interval is how often to look without having been notified.
func (l *listener) interval() time.Duration {
	if l.pipe == nil {
		return pollWithoutPipe
	}
	return pollInterval
}

// wait returns true when the process was notified, and false after d or when l is closed.
func (l *listener) wait(d time.Duration) bool {
	if l.pipe == nil {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-l.kick:
			return true
		case <-t.C:
			return false
		}
	}
	_ = l.pipe.SetReadDeadline(time.Now().Add(d))
	var b [512]byte
	_, err := l.pipe.Read(b[:])
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, os.ErrClosed) {
		time.Sleep(pollWithoutPipe) // it should not happen, and must not happen without end
	}
	return err == nil
}

// wake is a notification by the process itself.
func (l *listener) wake() {
	if l.pipe != nil {
		notify(l.path)
		return
	}
	select {
	case l.kick <- struct{}{}:
	default:
	}
}

func (l *listener) close() {
	if l.pipe == nil {
		l.wake()
		return
	}
	_ = os.Remove(l.path)
	_ = l.pipe.Close() // which ends wait
}
