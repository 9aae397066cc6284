package memcached

import (
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// shortTimer waits for parts of a millisecond. Go's timers do not: the runtime of an idle process sleeps in epoll_wait,
// which counts whole milliseconds. A timerfd ends that sleep when it is due, as a packet does, and blocks no thread.
type shortTimer struct {
	once sync.Once
	fd   int
	file *os.File // nil if the system has no such timer
}

func (t *shortTimer) open() {
	if fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err == nil {
		t.fd, t.file = fd, os.NewFile(uintptr(fd), "timerfd") //nolint:gosec // not negative
	}
}

// wait waits, or reports false. Only one goroutine may call it, and close after it.
func (t *shortTimer) wait(d time.Duration) bool {
	t.once.Do(t.open)
	if t.file == nil || unix.TimerfdSettime(t.fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil) != nil {
		return false
	}
	var expirations [8]byte
	_, err := t.file.Read(expirations[:])
	return err == nil
}

func (t *shortTimer) close() { _ = t.file.Close() } // of nil it does nothing
