//go:build unix

package supervise

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// terminal is the controlling terminal.
type terminal struct{ *os.File }

// terminal opens the controlling terminal, if there is one.
func (j *job) terminal() *terminal {
	if j.tty == nil {
		f, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
		if err != nil {
			return nil
		}
		j.tty = &terminal{f}
	}
	return j.tty
}

func (t *terminal) foreground() int {
	group, err := unix.IoctlGetInt(int(t.Fd()), unix.TIOCGPGRP)
	if err != nil {
		return 0
	}
	return group
}

// give makes a group the foreground one. A background process that does so is
// stopped by SIGTTOU unless it is ignored.
func (t *terminal) give(group int) {
	signal.Ignore(syscall.SIGTTOU)
	defer signal.Reset(syscall.SIGTTOU)
	_ = unix.IoctlSetPointerInt(int(t.Fd()), unix.TIOCSPGRP, group)
}

// stopped handles a command that was stopped. If it wants the terminal and this
// process has it, the command gets it. If this process does not have it either, or was asked to
// stop, or the command was stopped from the terminal, this process stops too, so that the shell
// sees it. Any other stop, by an operator, changes nothing: the lock stays held, and renewed.
func (j *job) stopped(sig syscall.Signal) {
	if t := j.terminal(); t != nil {
		wants := sig == syscall.SIGTTIN || sig == syscall.SIGTTOU
		switch fg := t.foreground(); {
		case wants && fg == unix.Getpgrp():
			t.give(j.group)
			j.gave = true
			_ = syscall.Kill(-j.group, syscall.SIGCONT)
			return
		case wants, sig == syscall.SIGTSTP && fg == j.group:
			j.stop(syscall.SIGTTIN)
			return
		case sig == syscall.SIGTSTP && fg == unix.Getpgrp():
			j.asked = time.Now()
		}
	}
	if !j.asked.IsZero() && isAnswer(sig, time.Since(j.asked)) {
		j.stop(syscall.SIGSTOP)
	}
}

// isAnswer reports whether the command was stopped because this process was asked to stop, so long ago. A command
// that has handled SIGTSTP may stop itself by SIGSTOP, as stop does.
func isAnswer(sig syscall.Signal, ago time.Duration) bool {
	return sig != syscall.SIGSTOP || ago < handleStop
}

// handleStop is how long after SIGTSTP a SIGSTOP of the command may be its own; later ones are an operator's.
const handleStop = 5 * time.Second

// stop stops our own process group, and takes the terminal back from the command; at SIGCONT loop
// goes on. SIGTTIN says why: another locker whose command we are, or a shell, gives the terminal to
// us then, or stops too if we have it. It does not stop the group of the session's leader: no shell
// would continue it.
func (j *job) stop(sig syscall.Signal) {
	j.asked = time.Time{}
	if session, err := unix.Getsid(0); err != nil || session == unix.Getpgrp() {
		j.resumed()
		return
	}
	if t := j.terminal(); t != nil && t.foreground() == j.group {
		t.give(unix.Getpgrp())
	}
	_ = syscall.Kill(0, sig)
}

// resumed continues the command, unless the right to run it has ended. Then the end of the
// context, which follows, has it end within what is left of the grace; if nothing is left, it is
// killed at once.
func (j *job) resumed() {
	if _, ok := j.right(); !ok {
		if time.Since(*j.until.Load()) >= j.Grace {
			signalAll(j.group, j.mark, syscall.SIGKILL)
		}
		return
	}
	if t := j.terminal(); t != nil && j.gave && t.foreground() == unix.Getpgrp() {
		t.give(j.group)
	}
	_ = syscall.Kill(-j.group, syscall.SIGCONT)
}

// takeTerminal takes the terminal back from a command that has ended.
func (j *job) takeTerminal() {
	if j.tty == nil {
		return
	}
	if j.gave && j.tty.foreground() == j.group {
		j.tty.give(unix.Getpgrp())
	}
	_ = j.tty.Close()
}
