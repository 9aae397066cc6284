//go:build unix

package command

import (
	"os"
	"syscall"
)

// forwardable are the signals that a command gets which locker runs.
var forwardable = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
	syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH,
}

// droppable: a reader of our messages that goes away does not end us while a
// command runs.
var droppable = []os.Signal{syscall.SIGPIPE}
