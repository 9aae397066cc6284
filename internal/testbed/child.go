package testbed

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"
)

// childEnv names the function that a test binary started by [Child] runs.
const childEnv = "LOCKER_TEST_CHILD"

var childFuncs = map[string]func(){}

// RegisterChild gives a name to a function that [Child] can run in a process
// of its own. Call it from init or at the top of TestMain.
func RegisterChild(name string, f func()) { childFuncs[name] = f }

// RunChild runs the registered function, and exits, when this process was
// started by [Child]; otherwise it does nothing. Call it first in TestMain.
func RunChild() {
	name, ok := os.LookupEnv(childEnv)
	if !ok {
		return
	}
	f := childFuncs[name]
	if f == nil {
		fmt.Fprintf(os.Stderr, "testbed: no child is registered as %q\n", name)
		os.Exit(2)
	}
	f()
	os.Exit(0)
}

// Main is RunChild and m.Run, for a TestMain that does no more.
func Main(m interface{ Run() int }) int {
	RunChild()
	return m.Run()
}

// Process is a child process that runs one registered function.
type Process struct {
	running
	tb    testing.TB
	name  string
	pid   int
	stdin io.WriteCloser
	lines chan string
	wg    sync.WaitGroup // the reader of lines
	err   error          // of Wait; running.mu guards it
}

// childWait bounds a wait for a child's line; maxLines is how many lines are kept
// unread: those after them are lost.
const (
	childWait = 60 * time.Second
	maxLines  = 1 << 16
)

// Child starts this test binary again as a process that runs the function
// registered as name, with env ("KEY=value") added to its environment. It is
// killed when tb ends. What it prints on standard error is in tb's log.
func Child(tb testing.TB, name string, env ...string) *Process {
	tb.Helper()
	exe, err := os.Executable()
	if err != nil {
		tb.Fatalf("testbed: child: %v", err)
	}
	p := &Process{tb: tb, name: name, lines: make(chan string, maxLines)}
	cmd := exec.Command(exe, "-test.run=^$") // runs no test if TestMain forgets RunChild
	cmd.Env = append(append(os.Environ(), childEnv+"="+name), env...)
	cmd.Stderr = os.Stderr
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		tb.Fatalf("testbed: child: %v", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		tb.Fatalf("testbed: child: %v", err)
	}
	if err := startWatched(cmd); err != nil {
		tb.Fatalf("testbed: child: %v", err)
	}
	p.cmd, p.pid = cmd, cmd.Process.Pid
	p.wg.Go(func() { p.read(out) })
	tb.Cleanup(p.Kill)
	return p
}

func (p *Process) read(out io.Reader) {
	defer close(p.lines)
	for s := bufio.NewScanner(out); s.Scan(); {
		select {
		case p.lines <- s.Text():
		default: // nobody reads: the child must not be held up
		}
	}
}

// Pid returns the process's number.
func (p *Process) Pid() int { return p.pid }

// WaitLine returns the rest of the next line of standard output that begins
// with prefix, passing over others. It fails the test when the process ends
// before it, and childWait after the call.
func (p *Process) WaitLine(prefix string) string {
	p.tb.Helper()
	timeout := time.NewTimer(childWait)
	defer timeout.Stop()
	for {
		select {
		case line, ok := <-p.lines:
			if !ok {
				p.tb.Fatalf("testbed: child %q ended without printing %q (does TestMain call testbed.RunChild?)", p.name, prefix)
			}
			if rest, found := strings.CutPrefix(line, prefix); found {
				return rest
			}
		case <-timeout.C:
			p.tb.Fatalf("testbed: child %q has not printed %q in %v", p.name, prefix, childWait)
		}
	}
}

// Lines returns the lines of standard output, for tests that do more than
// wait for one. It is closed when the process has ended.
func (p *Process) Lines() <-chan string { return p.lines }

// Send writes line to the process's standard input.
func (p *Process) Send(line string) {
	p.tb.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		p.tb.Fatalf("testbed: child %q: %v", p.name, err)
	}
}

// Kill ends the process with SIGKILL and returns when it is gone. It does nothing to one that
// has ended.
func (p *Process) Kill() {
	p.tb.Helper()
	p.must(p.kill(p.wg.Wait))
}

// Pause freezes the process with SIGSTOP, and returns when it stands still.
func (p *Process) Pause() {
	p.tb.Helper()
	p.must(p.pause())
}

// Resume lets a paused process go on.
func (p *Process) Resume() {
	p.tb.Helper()
	p.must(p.resume())
}

func (p *Process) must(err error) {
	p.tb.Helper()
	if err != nil && !errors.Is(err, errDown) {
		p.tb.Errorf("testbed: child %q: %v", p.name, err)
	}
}

// Wait returns when the process has ended by itself, with an error if it did
// not exit with 0. It is not for a process that another goroutine kills.
func (p *Process) Wait() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		p.wg.Wait() // Wait closes the pipe: all of it must have been read
		p.err = p.cmd.Wait()
		watch.send("- %d", p.pid)
		p.cmd = nil
	}
	return p.err
}
