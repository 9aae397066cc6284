//go:build !unix

package supervise

import (
	"context"
	"errors"
	"io"
	"os/exec"
	"time"
)

// Run starts cmd and waits for its end. This system has no process groups and no
// signals: when ctx ends, the command alone is ended, at once.
func Run(ctx context.Context, cmd *exec.Cmd, o Options) (Result, error) {
	if time.Until(o.Until()) <= 0 {
		return Result{}, ErrNotValid
	}
	cmd.Env = append(cmd.Environ(), MarkName+"="+newMark())
	if err := cmd.Start(); err != nil {
		return Result{}, err
	}
	forget := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	err := cmd.Wait()
	ended := !forget()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		return Result{Code: 1, Ended: ended}, nil
	}
	return Result{Code: cmd.ProcessState.ExitCode(), Ended: ended}, nil
}

// Guard does nothing on this system.
func Guard(io.Reader, io.Writer) {}
