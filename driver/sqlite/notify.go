package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// pipeFolder is the folder of the named pipes of the processes that use the database.
func pipeFolder(db string) string { return db + "-notify" }

// pipeName is what the IDs of processes look like (crypto/rand.Text). An ID that is read from a database may be what another
// user has written there, and must not lead out of the folder.
var pipeName = regexp.MustCompile(`^[A-Z2-7]{26}$`)

// notifyProcess notifies a process that uses the database.
func notifyProcess(db, process string) {
	if pipeName.MatchString(process) {
		notify(filepath.Join(pipeFolder(db), process))
	}
}

// listener is where other processes notify this one: a named pipe, to which they write a byte. What has
// happened is in the database, so a full pipe loses nothing.
type listener struct {
	path string
	pipe *os.File      // nil if there are no pipes: then the process polls
	self chan struct{} // without a pipe: notifications by the process itself
}

func listen(db, process string) *listener {
	l := &listener{path: filepath.Join(pipeFolder(db), process), self: make(chan struct{}, 1)}
	l.pipe, _ = openPipe(db, l.path)
	return l
}

// interval is how often to poll without a notification.
func (l *listener) interval() time.Duration {
	if l.pipe == nil {
		return pollWithoutPipe
	}
	return pollInterval
}

// wait returns when the process is notified, after d, or when l is closed.
func (l *listener) wait(d time.Duration) {
	if l.pipe == nil {
		select {
		case <-l.self:
		case <-time.After(d):
		}
		return
	}
	_ = l.pipe.SetReadDeadline(time.Now().Add(d))
	var b [512]byte
	_, err := l.pipe.Read(b[:])
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, os.ErrClosed) {
		time.Sleep(pollWithoutPipe) // not expected; do not loop without a pause
	}
}

// wake notifies the process itself.
func (l *listener) wake() {
	if l.pipe != nil {
		notify(l.path)
		return
	}
	select {
	case l.self <- struct{}{}:
	default:
	}
}

func (l *listener) close() {
	if l.pipe == nil {
		l.wake()
		return
	}
	_ = os.Remove(l.path)
	_ = l.pipe.Close() // ends wait
}
