//go:build unix

package supervise

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// orders are what the guard knows and is to do. Times are of sharedClock; 0: never.
type orders struct {
	group int           // of the command
	mark  string        // of all that it has started
	term  time.Duration // when they get SIGTERM, unless this process has sent it
	kill  time.Duration // when they get SIGKILL
}

func (o orders) String() string {
	return fmt.Sprintf("%d %s %d %d\n", o.group, o.mark, o.term, o.kill)
}

func readOrders(line string) (o orders) {
	_, _ = fmt.Sscan(line, &o.group, &o.mark, &o.term, &o.kill)
	return o
}

// guard is the process that ends what is left of the command when this process is killed,
// and all of it when this process stands still and the right to run it ends. It notices the
// first because the kernel closes the pipe between them, and the second because it has a
// clock, and gets no orders with later times.
type guard struct {
	command []string
	log     func(string)

	mu    sync.Mutex
	cmd   *exec.Cmd     // nil: there is none
	pipe  *os.File      // to it
	back  *os.File      // from it: see Guard
	ended chan struct{} // closed when the guard's process has ended
	sent  orders
	final bool // sent is not changed any more
}

// newGuard starts a guard.
func newGuard(command []string, log func(string)) *guard {
	g := &guard{command: command, log: log}
	g.report(g.start())
	return g
}

func (g *guard) report(err error) {
	if err != nil {
		g.log(fmt.Sprintf("there is no guard: if locker is killed, processes that the command has started may go on: %v", err))
	}
}

// start starts the guard's process, in a session of its own, so that signals to this
// process or its group do not reach it. It returns when the guard watches: on a busy
// machine a process takes long to come up, and the command must not be without a
// guard for so long. With mu held, or before g is shared.
func (g *guard) start() error {
	in, pipe, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	back, out, err := os.Pipe()
	if err != nil {
		pipe.Close()
		return err
	}
	defer out.Close()
	cmd := exec.Command(g.command[0], g.command[1:]...) //nolint:noctx // stop ends it
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout = in, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		pipe.Close()
		back.Close()
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = cmd.Wait()
	}()
	g.cmd, g.pipe, g.back, g.ended = cmd, pipe, back, ended
	out.Close() // so that the end of the guard's process ends the wait
	_, err = g.answer(2 * time.Second)
	if err != nil {
		g.end()
	}
	return err
}

// answer waits for a byte from the guard. With mu held, or before g is shared.
func (g *guard) answer(patience time.Duration) (byte, error) {
	var b [1]byte
	_ = g.back.SetReadDeadline(time.Now().Add(patience))
	_, err := g.back.Read(b[:])
	return b[0], err
}

// tell gives the guard its orders, if they are new. A guard that was killed is replaced.
func (g *guard) tell(o orders) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.final || g.cmd == nil {
		return
	}
	select {
	case <-g.ended:
		g.end()
		err := g.start()
		g.report(err)
		if err == nil {
			g.log("the guard was killed; another one watches the command")
			g.send(o)
		}
	default:
		if !g.sent.like(o) {
			g.send(o)
		}
	}
}

// like reports whether o says nothing new: readings of the clock differ a little.
func (o orders) like(p orders) bool {
	const jitter = 5 * time.Millisecond
	return o.group == p.group && o.mark == p.mark && (o.term-p.term).Abs() < jitter && (o.kill-p.kill).Abs() < jitter
}

// send writes orders. With mu held.
func (g *guard) send(o orders) {
	g.sent = o
	_ = g.pipe.SetWriteDeadline(time.Now().Add(time.Second)) // for a guard that was stopped
	_, _ = io.WriteString(g.pipe, o.String())                // a guard that has ended is noticed by tell
}

// finish says that this process ends the command, and that what is left is to be killed after
// d. Later orders are ignored. It reports whether the guard has sent SIGTERM already; a guard
// that does not answer has not.
func (g *guard) finish(d time.Duration) (sent bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.final || g.cmd == nil {
		return false
	}
	o := g.sent
	o.term = 0
	if kill := sharedClock() + d; o.kill == 0 || kill < o.kill {
		o.kill = kill
	}
	g.send(o)
	g.final = true
	b, err := g.answer(min(time.Second, d/2))
	return err == nil && b == hasSent
}

// stop ends the guard. The command has ended.
func (g *guard) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.cmd != nil {
		g.end()
	}
}

// end ends the guard's process. With mu held.
func (g *guard) end() {
	_ = g.cmd.Process.Kill()
	<-g.ended
	g.pipe.Close()
	g.back.Close()
	g.cmd = nil
}

const (
	clockEach = 50 * time.Millisecond // how often the guard looks at the clock: timers stand still in a suspension
	lateOrder = 20 * time.Millisecond // how long it then waits for orders that are on their way
)

// What the guard writes.
const (
	watches = '\n' // when it has come up, and as the answer to orders without SIGTERM
	hasSent = 'T'  // when it has sent SIGTERM
)

// Guard reads orders from in. At the end of the process at the other end of in it kills what
// the last orders have named, and at their times it ends it. The guard's process does nothing
// else. What it writes to out tells the other process which of the two has sent SIGTERM.
func Guard(in io.Reader, out io.Writer) {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGPIPE)
	say := func(b byte) { _, _ = out.Write([]byte{b}) }
	say(watches)
	lines := make(chan string)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(in); s.Scan(); {
			lines <- s.Text()
		}
	}()
	var o orders
	for {
		due, pause := o.due(sharedClock()), clockEach
		if due {
			pause = lateOrder
		}
		select {
		case line, ok := <-lines:
			if !ok {
				o.killAll()
				return
			}
			if o = readOrders(line); o.term == 0 {
				say(watches)
			}
			continue
		case <-time.After(pause):
		}
		if due {
			if o.act(sharedClock()) {
				return
			}
			say(hasSent)
		}
	}
}

// due reports whether a time has come.
func (o *orders) due(now time.Duration) bool {
	return o.term != 0 && now >= o.term || o.kill != 0 && now >= o.kill
}

// act does what is due, and reports whether nothing is left to do. A process that is stopped
// stays so until it is killed: whoever has stopped the command with this process (Ctrl-Z)
// does not expect that it goes on.
func (o *orders) act(now time.Duration) (done bool) {
	if o.kill != 0 && now >= o.kill {
		o.killAll()
		return true
	}
	if o.group != 0 {
		signalAll(o.group, o.mark, syscall.SIGTERM)
	}
	o.term = 0
	return false
}

// killAll kills the command and all that it has started.
func (o *orders) killAll() {
	if o.group == 0 || o.mark == "" {
		return
	}
	signalAll(o.group, o.mark, syscall.SIGKILL)
	for range 100 { // processes that were started meanwhile
		time.Sleep(10 * time.Millisecond)
		if len(remaining(o.group, o.mark)) == 0 {
			return
		}
		signalAll(o.group, o.mark, syscall.SIGKILL)
	}
}
