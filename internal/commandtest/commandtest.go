// Package commandtest runs the command line of locker as a process.
//
//	func TestMain(m *testing.M) {
//		if filepath.Base(os.Args[0]) == "locker" {
//			os.Exit(command.Main(…))
//		}
//		commandtest.Main(m)
//	}
//
//	func TestThing(t *testing.T) {
//		srv := testbed.SharedRedis(t)
//		r := commandtest.Command(t, "thing", "NAME").With("LOCKER_URL=" + srv.URL()).Run()
//		if r.Code != 0 { t.Fatal(r) }
//	}
//
// The process is the test binary under the name locker, so TestMain has to be
// locker's main function when it is called so. It runs in an environment of its own:
// nothing of the tester's LOCKER_… variables, a folder of its own for its state, no
// colours.
package commandtest

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/internal/testbed"
)

// patience is how long a process may take for anything before the test fails.
const patience = time.Minute

// Main is testbed.RunChild and the tests, and looks for leaked goroutines at the
// end. It ends the process.
func Main(m *testing.M) {
	testbed.RunChild()
	// Under nohup programs are started that ignore a hangup. Those that a process starts
	// which is notified of one do not.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	if err := flag.Set("test.parallel", "8"); err != nil { // they wait most of the time; the command line's goes before
		panic(err)
	}
	// A Redis client that was closed while its server was away ends its dials within a second.
	dials := goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial")
	goleak.VerifyTestMain(m, dials)
}

// Binary returns the path of the program.
func Binary(tb testing.TB) string {
	tb.Helper()
	self, err := os.Executable()
	path := filepath.Join(tb.TempDir(), "locker")
	if err == nil {
		err = os.Symlink(self, path)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// Cmd is one run of the program. What it does not say is as in exec.Cmd; standard
// output and error are kept unless they are set.
type Cmd struct {
	*exec.Cmd
	tb          testing.TB
	out, errOut testbed.Buffer
	begun       time.Time
	done        chan struct{} // closed when the process has ended and was waited for
}

// Command prepares a run of the program.
func Command(tb testing.TB, args ...string) *Cmd {
	tb.Helper()
	c := &Cmd{Cmd: exec.CommandContext(tb.Context(), Binary(tb), args...), tb: tb}
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "LOCKER_") && !strings.HasPrefix(v, "NO_COLOR=") {
			c.Env = append(c.Env, v)
		}
	}
	return c.With("XDG_STATE_HOME=" + tb.TempDir())
}

// With adds variables to the environment ("KEY=value").
func (c *Cmd) With(env ...string) *Cmd {
	c.Env = append(c.Env, env...)
	return c
}

// Result is how a process ended. As text it says all that a failed test wants to
// know.
type Result struct {
	Args        []string
	Code        int // 128+n: ended by signal n
	Out, ErrOut string
	Took        time.Duration
}

func (r Result) String() string {
	return fmt.Sprintf("locker %q: exit code %d after %v\n--- standard output\n%s--- standard error\n%s",
		r.Args, r.Code, r.Took.Round(time.Millisecond), r.Out, r.ErrOut)
}

// Run starts the process and waits for its end.
func (c *Cmd) Run() Result {
	c.tb.Helper()
	return c.Start().Wait()
}

// Start starts the process. It is killed when the test ends.
func (c *Cmd) Start() *Cmd {
	c.tb.Helper()
	if c.Stdout == nil {
		c.Stdout = &c.out
	}
	if c.Stderr == nil {
		c.Stderr = &c.errOut
	}
	c.WaitDelay = 5 * time.Second // for grandchildren that keep the pipes
	c.begun = time.Now()
	if err := c.Cmd.Start(); err != nil {
		c.tb.Fatal(err)
	}
	c.done = make(chan struct{})
	go func() {
		defer close(c.done)
		_ = c.Cmd.Wait() // Wait reads the ProcessState
	}()
	c.tb.Cleanup(func() {
		_ = c.Process.Kill()
		<-c.done
	})
	return c
}

// Wait waits for the process to end.
func (c *Cmd) Wait() Result {
	c.tb.Helper()
	select {
	case <-c.done:
	case <-time.After(patience):
		_ = c.Process.Kill()
		<-c.done
		c.tb.Fatalf("the process did not end\n%v", c.result())
	}
	r := c.result()
	if strings.Contains(r.ErrOut, "WARNING: DATA RACE") {
		c.tb.Errorf("a data race\n%v", r)
	}
	return r
}

func (c *Cmd) result() Result {
	r := Result{
		Args: c.Args[1:], Code: c.ProcessState.ExitCode(),
		Out: c.out.String(), ErrOut: c.errOut.String(), Took: time.Since(c.begun),
	}
	if ws, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		r.Code = 128 + int(ws.Signal())
	}
	return r
}

// Signal sends the process a signal.
func (c *Cmd) Signal(sig os.Signal) {
	c.tb.Helper()
	if err := c.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		c.tb.Fatal(err)
	}
}

// WaitOut waits until standard output contains text, and returns it all.
func (c *Cmd) WaitOut(text string) string {
	c.tb.Helper()
	return c.waitFor(&c.out, text)
}

// WaitErr waits until standard error contains text, and returns it all.
func (c *Cmd) WaitErr(text string) string {
	c.tb.Helper()
	return c.waitFor(&c.errOut, text)
}

func (c *Cmd) waitFor(b *testbed.Buffer, text string) string {
	c.tb.Helper()
	ended := false
	Eventually(c.tb, fmt.Sprintf("%q is printed", text), func() bool {
		if strings.Contains(b.String(), text) {
			return true
		}
		if ended {
			c.tb.Fatalf("the process ended and has not printed %q\n%v", text, c.result())
		}
		select {
		case <-c.done: // look once more
			ended = true
		default:
		}
		return false
	})
	return b.String()
}

// Eventually waits until ok, and fails the test after a minute.
func Eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			tb.Fatalf("after %v it is not so that %s", patience, what)
		}
	}
}
