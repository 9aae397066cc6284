//go:build unix

package sim

import (
	"io"
	"sync"
	"syscall"
)

// sockets are two that stand for all connections of the model where a client looks at the socket itself, as go-redis and go-sql-driver do before
// they use an idle connection: one with nothing to read, and one whose other end is closed.
var sockets = sync.OnceValues(func() (open, closed uintptr) {
	var fds [2][2]int
	for i := range fds {
		var err error
		if fds[i], err = syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0); err != nil {
			panic(err)
		}
	}
	err := syscall.Close(fds[1][1])
	if err == nil {
		err = syscall.SetNonblock(fds[0][0], true)
	}
	if err != nil {
		panic(err)
	}
	return uintptr(fds[0][0]), uintptr(fds[1][0])
})

// SyscallConn implements syscall.Conn.
func (c *conn) SyscallConn() (syscall.RawConn, error) { return socket{c}, nil }

// socket is that of a connection.
type socket struct{ c *conn }

func (s socket) Read(f func(fd uintptr) bool) error {
	fd, closed := sockets()
	if s.c.failed() {
		fd = closed
	}
	if !f(fd) {
		return io.ErrNoProgress
	}
	return nil
}

func (s socket) Write(func(fd uintptr) bool) error { return syscall.ENOTSUP }
func (s socket) Control(func(fd uintptr)) error    { return syscall.ENOTSUP }
