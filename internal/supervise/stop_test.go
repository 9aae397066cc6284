//go:build unix

package supervise

import (
	"syscall"
	"testing"
	"time"
)

// A command that has ignored Ctrl-Z, and that an operator stops later, is not one that answers it.
func TestIsAnswer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		sig  syscall.Signal
		ago  time.Duration
		want bool
	}{
		{syscall.SIGTSTP, time.Hour, true},
		{syscall.SIGSTOP, 0, true},
		{syscall.SIGSTOP, handleStop - 1, true},
		{syscall.SIGSTOP, handleStop, false},
	} {
		if got := isAnswer(c.sig, c.ago); got != c.want {
			t.Errorf("%v, %v after this process was asked to stop: %v, want %v", c.sig, c.ago, got, c.want)
		}
	}
}
