//go:build unix

package link

import (
	"net"
	"syscall"
)

// endListening makes the system refuse connections to l from now on, whoever else
// has its socket. Systems other than Linux may not know this of a listening socket.
func endListening(l net.Listener) {
	raw, err := l.(*net.TCPListener).SyscallConn()
	if err != nil {
		return // it is closed
	}
	_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
}
