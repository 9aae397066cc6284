//go:build unix

package supervise

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockerproject/locker/internal/retry"
)

// job is a command that runs.
type job struct {
	Options
	group    int       // its process, and process group
	mark     string    // "LOCKER_RUN_ID=…"
	ended    bool      // it got SIGTERM because the context ended
	deadline time.Time // then: by when it has to end

	guard *guard
	until atomic.Pointer[time.Time] // the end of the right to run the command, as it was known last

	own   chan os.Signal // SIGCONT and SIGTSTP to this process
	tty   *terminal
	gave  bool      // the terminal, to the group
	asked time.Time // when a signal asked this process to stop; zero: none did
}

// Run starts cmd, whose standard streams are files, and waits for its end. An
// error means that it was not started.
//
// Run is not for several goroutines at once: it handles signals of the process.
func Run(ctx context.Context, cmd *exec.Cmd, o Options) (Result, error) {
	// The kernel sends the signal for the parent's death when the thread that has
	// started the child ends.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	j := &job{Options: o, mark: MarkName + "=" + newMark(), own: make(chan os.Signal, 4)}
	cmd.Env = append(cmd.Environ(), j.mark)
	cmd.SysProcAttr = attributes()
	j.guard = newGuard(o.Guard, j.Log)
	defer j.guard.stop()
	signal.Notify(j.own, syscall.SIGCONT, syscall.SIGTSTP)
	defer signal.Stop(j.own)
	until, ok := j.right()
	if !ok { // the guard has taken its time, or this process was stopped
		return Result{}, ErrNotValid
	}
	if err := start(cmd); err != nil {
		return Result{}, err
	}
	j.group = cmd.Process.Pid
	j.watchUntil(until)
	changes := watch(j.group)
	defer func() { _ = cmd.Process.Release() }()
	defer j.takeTerminal()
	checking, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	group.Go(func() { j.check(checking) })
	return j.loop(ctx, changes), nil
}

const checkEach = 50 * time.Millisecond

// check asks again and again until when there is the right to run the command, so that the
// guard, and this process after it has stood still, know when that has ended.
func (j *job) check(ctx context.Context) {
	for retry.Sleep(ctx, checkEach, nil) {
		until, ok := j.right()
		if ok || !until.IsZero() { // else the context has ended, or does now
			j.watchUntil(until)
		}
		if !ok {
			return
		}
	}
}

// right returns until when there is the right to run the command; zero: it has ended. It
// reports whether there is the right now.
func (j *job) right() (until time.Time, ok bool) {
	until = j.Until()
	return until, time.Until(until) > 0
}

// watchUntil has the guard end the command if this process has not begun to do that soon after
// the end of the right to run it.
func (j *job) watchUntil(until time.Time) {
	j.until.Store(&until)
	end := sharedClock() + time.Until(until)
	j.guard.tell(orders{group: j.group, mark: j.mark, term: end + checkEach, kill: end + j.Grace})
}

// start starts cmd. As execvp does, it starts a script that names no interpreter
// with the shell.
func start(cmd *exec.Cmd) error {
	err := cmd.Start()
	if !errors.Is(err, syscall.ENOEXEC) {
		return err
	}
	again := exec.Command("/bin/sh", append([]string{cmd.Path}, cmd.Args[1:]...)...) //nolint:noctx // Run ends it
	again.Env, again.Dir, again.SysProcAttr = cmd.Env, cmd.Dir, cmd.SysProcAttr
	again.Stdin, again.Stdout, again.Stderr = cmd.Stdin, cmd.Stdout, cmd.Stderr
	err = again.Start()
	cmd.Process = again.Process
	return err
}

// watch reports the changes of a child: that it was stopped, at last that it has
// ended. The first process of a container gets the orphans in it, and has to wait for
// them, too.
func watch(pid int) <-chan syscall.WaitStatus {
	whom := pid
	if os.Getpid() == 1 {
		whom = -1 // any
	}
	changes := make(chan syscall.WaitStatus)
	go func() {
		defer close(changes)
		for {
			var status syscall.WaitStatus
			changed, err := syscall.Wait4(whom, &status, syscall.WUNTRACED, nil)
			switch {
			case errors.Is(err, syscall.EINTR):
				continue
			case err != nil:
				return
			case changed != pid:
				continue
			}
			changes <- status
			if status.Exited() || status.Signaled() {
				return
			}
		}
	}()
	return changes
}

func (j *job) loop(ctx context.Context, changes <-chan syscall.WaitStatus) Result {
	over := ctx.Done()
	var kill <-chan time.Time
	for {
		select {
		case status, ok := <-changes:
			switch {
			case !ok:
				j.Log("the system does not tell how the command ended")
				return Result{Code: 1, Ended: j.ended}
			case status.Stopped():
				j.stopped(status.StopSignal())
			default:
				return j.exited(ctx, status)
			}
		case sig := <-j.Signals:
			j.send(sig.(syscall.Signal)) //nolint:forcetypeassert // all are, on Unix
		case sig := <-j.own:
			if sig == syscall.SIGTSTP {
				j.asked = time.Now()
				j.send(syscall.SIGTSTP)
			} else {
				j.resumed()
			}
		case <-over:
			over = nil
			j.end()
			kill = time.After(time.Until(j.deadline))
		case <-kill:
			signalAll(j.group, j.mark, syscall.SIGKILL)
		}
	}
}

// end sends SIGTERM to the command and to what it has started, unless the guard has done so:
// many programs stop cleaning up after a second one. Stopped processes are
// continued, so that they can end. If this process has stood still, part of the grace is
// over: it counts from the end of the right to run the command. If nothing is left, they stay
// stopped until they are killed.
func (j *job) end() {
	j.ended = true
	begin := time.Now()
	if until := j.until.Load(); until.Before(begin) {
		begin = *until
	}
	j.deadline = begin.Add(j.Grace)
	if !j.guard.finish(time.Until(j.deadline)) {
		signalAll(j.group, j.mark, syscall.SIGTERM)
	}
	if time.Until(j.deadline) > 0 {
		signalAll(j.group, j.mark, syscall.SIGCONT)
	}
}

// exited handles the end of the command. If the context has ended, it also ends what
// the command has started.
func (j *job) exited(ctx context.Context, status syscall.WaitStatus) Result {
	if ctx.Err() != nil {
		if !j.ended {
			j.end()
		}
		j.endRest()
	}
	return Result{Code: code(status), Ended: j.ended}
}

func code(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}

// send sends a signal on to the group.
func (j *job) send(sig syscall.Signal) {
	_ = syscall.Kill(-j.group, sig)
	if sig == syscall.SIGTERM || sig == syscall.SIGHUP {
		_ = syscall.Kill(-j.group, syscall.SIGCONT) // a stopped process does not handle it
	}
}

// endRest waits for the processes that the command has left, and kills them at
// the deadline.
func (j *job) endRest() {
	const patience = 2 * time.Second // for a process in the kernel's hands
	for len(remaining(j.group, j.mark)) > 0 {
		late := time.Since(j.deadline)
		if late > patience {
			j.Log("processes of the command do not end")
			return
		}
		if late >= 0 {
			signalAll(j.group, j.mark, syscall.SIGKILL)
		}
		time.Sleep(min(20*time.Millisecond, max(time.Millisecond, -late)))
	}
}
