//go:build !unix

package command

import "os"

// forwardable are the signals that locker passes on to its command: none, since a
// console sends Ctrl-C to all its processes.
var forwardable []os.Signal

func hasTerminal() bool { return false }

var droppable []os.Signal
