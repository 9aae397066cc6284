// Package supervise runs a command that must not outlive the right to run it.
//
// The command gets a process group of its own. Signals that this process receives are
// sent on to the whole group, once. On a terminal the group becomes the foreground
// group when it first reads from the terminal or changes its settings; from then on
// it receives Ctrl-C from the terminal itself. Ctrl-Z stops both, and fg continues
// both.
//
// When the context ends, the command gets SIGTERM and, Grace later, SIGKILL, and with
// it all processes that it has started: those of its group and, on Linux, those that
// have its mark in their environment, since timeout and interactive shells start
// processes in groups of their own. Processes that run as another user, or that have
// cleared their environment in another group, are not killed.
//
// A guard, a process that does nothing else, kills the group and the processes with the
// mark when this process is killed (on Linux the kernel kills the command itself before
// that). When this process stands still, stopped or starved, and the right to run the
// command ends, the guard sends SIGTERM in its stead, and Grace later SIGKILL. If the guard
// is killed, another one is started.
package supervise

import (
	"crypto/rand"
	"errors"
	"os"
	"time"
)

// MarkName is the variable of the command's environment that holds the mark: a
// text that is unique to this run.
const MarkName = "LOCKER_RUN_ID"

// Options of Run.
type Options struct {
	// Grace is the time between SIGTERM and SIGKILL. If SIGTERM comes late, because this
	// process has stood still, SIGKILL does not: the grace counts from Until.
	Grace time.Duration
	// Signals are sent on to the command. The caller catches them.
	Signals <-chan os.Signal
	// Until returns the time when the right to run the command ends unless it is
	// prolonged; zero: it has ended. Run calls it right before it starts the command: a
	// time that is over is ErrNotValid. Run also calls it when this process goes on after
	// it was stopped: a command whose grace is over too is killed at once. And Run calls it
	// every 50 ms, in another goroutine. When the right ends, the caller ends the context.
	Until func() time.Time
	// Guard is the command line that runs Guard in another process.
	Guard []string
	// Log gets the text of failures that do not end the command.
	Log func(text string)
}

// Result is how the command ended.
type Result struct {
	Code  int  // of the exit; 128+n: ended by signal n
	Ended bool // it got SIGTERM because the context had ended
}

// ErrNotValid is Run's error if Until is over before the command is started.
var ErrNotValid = errors.New("there is no right to run the command any more")

func newMark() string { return rand.Text() }
