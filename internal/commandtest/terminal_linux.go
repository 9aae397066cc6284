package commandtest

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/lockerproject/locker/internal/testbed"
)

// Terminal is a pseudo-terminal, on which a process runs as on a person's.
type Terminal struct {
	tb     testing.TB
	master *os.File
	slave  *os.File
	out    testbed.Buffer
}

// NewTerminal opens a terminal, which is closed when the test ends.
func NewTerminal(tb testing.TB) *Terminal {
	tb.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		tb.Skip("no pseudo-terminals here: ", err)
	}
	t := &Terminal{tb: tb, master: master}
	var name string
	err = control(master, func(fd int) error {
		n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
		name = fmt.Sprintf("/dev/pts/%d", n)
		if err == nil {
			err = unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0)
		}
		if err == nil {
			err = unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 100})
		}
		return err
	})
	if err == nil {
		t.slave, err = os.OpenFile(name, os.O_RDWR|syscall.O_NOCTTY, 0)
	}
	if err != nil {
		tb.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			_, _ = t.out.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	tb.Cleanup(func() {
		t.slave.Close()
		master.Close()
		<-done
	})
	return t
}

func control(f *os.File, do func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	if err := raw.Control(func(fd uintptr) { inner = do(int(fd)) }); err != nil { //nolint:gosec // a small number
		return err
	}
	return inner
}

// Attach has c run on the terminal, which becomes its controlling one.
func (t *Terminal) Attach(c *Cmd) *Cmd {
	c.Stdin, c.Stdout, c.Stderr = t.slave, t.slave, t.slave
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return c
}

// Hangup takes the terminal away, as the end of a window or of a connection does.
func (t *Terminal) Hangup() {
	t.slave.Close()
	t.master.Close()
}

// Type sends keys: "\x03" is Ctrl-C, "\x1a" is Ctrl-Z.
func (t *Terminal) Type(keys string) {
	t.tb.Helper()
	if _, err := t.master.WriteString(keys); err != nil {
		t.tb.Fatal(err)
	}
}

// WaitFor waits until the terminal has shown text, and returns all that it has
// shown.
func (t *Terminal) WaitFor(text string) string {
	t.tb.Helper()
	Eventually(t.tb, fmt.Sprintf("the terminal shows %q", text), func() bool { return strings.Contains(t.out.String(), text) })
	return t.out.String()
}

// Shown returns all that the terminal has shown.
func (t *Terminal) Shown() string { return t.out.String() }
