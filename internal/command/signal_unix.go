//go:build unix

package command

import (
	"os"
	"syscall"
)

// forwardable are the signals that locker passes on to its command.
var forwardable = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
}

// hasTerminal reports whether this process has a controlling terminal.
func hasTerminal() bool {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err == nil {
		f.Close()
	}
	return err == nil
}

// droppable are the signals that do not end locker while a command runs, or the console: the
// reader of our messages may go.
var droppable = []os.Signal{syscall.SIGPIPE}
