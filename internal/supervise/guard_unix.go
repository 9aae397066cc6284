//go:build unix

package supervise

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"
)

// guard is the process that ends what is left of the command when this process is
// killed. It notices that because the kernel closes the pipe between them.
type guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
}

// startGuard starts the guard, in a session of its own, so that signals to this
// process or its group do not reach it. It returns when the guard watches: on a busy
// machine a process takes long to come up, and the command must not be without a
// guard for so long.
func startGuard(command []string, log func(string)) *guard {
	if len(command) == 0 {
		return nil
	}
	cmd := exec.Command(command[0], command[1:]...) //nolint:noctx // stop ends it
	cmd.Env = []string{}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return noGuard(log, err)
	}
	watches, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return noGuard(log, err)
	}
	g := &guard{cmd, pipe}
	if err := awaitByte(watches); err != nil {
		g.stop()
		return noGuard(log, err)
	}
	return g
}

func noGuard(log func(string), err error) *guard {
	log(fmt.Sprintf("there is no guard: if locker is killed, processes that the command has started may go on: %v", err))
	return nil
}

// awaitByte waits for a byte from a process that was started.
func awaitByte(from io.ReadCloser) error {
	defer from.Close()
	const patience = 2 * time.Second
	if file, ok := from.(*os.File); ok {
		_ = file.SetReadDeadline(time.Now().Add(patience))
	}
	_, err := from.Read(make([]byte, 1))
	return err
}

func (g *guard) watch(group int, mark string) {
	if g != nil {
		_, _ = fmt.Fprintf(g.pipe, "%d %s\n", group, mark)
	}
}

// stop ends the guard. The command has ended.
func (g *guard) stop() {
	if g == nil {
		return
	}
	_ = g.cmd.Process.Kill()
	_ = g.cmd.Wait()
}

// Guard writes a byte to out, waits for the end of the process at the other end of in,
// and then kills the group and the marked processes that in has named. The guard's
// process does nothing else.
func Guard(in io.Reader, out io.Writer) {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2)
	_, _ = out.Write([]byte{'\n'})
	var group int
	var mark string
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		_, _ = fmt.Sscan(lines.Text(), &group, &mark)
	}
	if group == 0 || mark == "" {
		return
	}
	signalAll(group, mark, syscall.SIGKILL)
	for range 100 { // processes that were started meanwhile
		time.Sleep(10 * time.Millisecond)
		if len(remaining(group, mark)) == 0 {
			return
		}
		signalAll(group, mark, syscall.SIGKILL)
	}
}
