//go:build unix

package main

import (
	"os"
	"syscall"
)

// pause stops a child process, as a machine that is suspended or swaps does. It
// returns when the child has stopped, which takes the signal a moment.
func pause(p *os.Process) error {
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	var status syscall.WaitStatus
	for !status.Stopped() {
		_, err := syscall.Wait4(p.Pid, &status, syscall.WUNTRACED, nil)
		if err != nil && err != syscall.EINTR {
			return err
		}
		if status.Exited() || status.Signaled() {
			return os.ErrProcessDone
		}
	}
	return nil
}

func resume(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
