//go:build !unix

package command

import "os"

// forwardable are the signals that a command gets which locker runs: none, since
// a console tells all its processes of Ctrl-C.
var forwardable []os.Signal

var droppable []os.Signal
