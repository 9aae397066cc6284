package sqltest

import (
	"bytes"
	"context"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// A Fault is what happens to one statement.
type Fault int32

// Faults.
const (
	None    Fault = iota
	Refused       // the connection breaks before the statement is sent
	Lost          // the statement is executed, and the connection breaks instead of the answer
	Held          // the answer arrives a second later
	Late          // the connection breaks, and the statement arrives a second later
	Silent        // it arrives a second later, and nothing else on the connection, which stays
)

var faultNames = [...]string{"none", "refused", "lost", "held", "late", "silent"}

const faultTime = time.Second

// A Dial opens connections.
type Dial func(ctx context.Context, network, addr string) (net.Conn, error)

// A wire is the network of one process, on which one statement meets a fault.
type wire struct {
	isStatement func(packet []byte) bool
	fault       Fault
	at          int // which statement

	mu   sync.Mutex
	sent int
	met  string    // the statement
	over time.Time // when it has arrived
}

func (w *wire) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, network, addr)
	return &wireConn{Conn: c, w: w}, err
}

// meets reports whether a packet is the statement that meets the fault.
func (w *wire) meets(packet []byte) bool {
	if !w.isStatement(packet) {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.sent++; w.sent != w.at {
		return false
	}
	w.over = time.Now().Add(faultTime + 300*time.Millisecond)
	w.met = strings.ToValidUTF8(strings.ReplaceAll(string(packet[:min(len(packet), 150)]), "\x00", ""), "")
	return true
}

// seen returns how many statements were sent, which has met the fault, and when it has arrived.
func (w *wire) seen() (sent int, met string, over time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent, w.met, w.over
}

type wireConn struct {
	net.Conn
	w     *wire
	fault atomic.Int32
	ends  atomic.Int32 // with Late and Silent: of the client, and of the statement
}

func (c *wireConn) Write(b []byte) (int, error) {
	met := c.w.meets(b)
	if met {
		c.fault.Store(int32(c.w.fault))
	}
	switch Fault(c.fault.Load()) {
	case Refused:
		return 0, broken("write", syscall.EPIPE)
	case Late, Silent:
		if met {
			go c.arrive(bytes.Clone(b))
		}
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *wireConn) arrive(statement []byte) {
	time.Sleep(faultTime)
	_ = c.Conn.SetWriteDeadline(time.Time{})
	_, _ = c.Conn.Write(statement)
	c.end()
}

func (c *wireConn) Read(b []byte) (int, error) {
	f := Fault(c.fault.Load())
	if f == Late {
		return 0, broken("read", syscall.ECONNRESET)
	}
	n, err := c.Conn.Read(b)
	switch {
	case f == Lost && err == nil:
		return 0, broken("read", syscall.ECONNRESET)
	case f == Silent && err == nil:
		return c.Read(b)
	case f == Held:
		c.fault.Store(int32(None))
		time.Sleep(faultTime)
	}
	return n, err
}

// Close closes the connection when nothing is to arrive on it any more.
func (c *wireConn) Close() error {
	if f := Fault(c.fault.Load()); f != Late && f != Silent {
		return c.Conn.Close()
	}
	_ = c.Conn.SetReadDeadline(time.Now())
	c.end()
	return nil
}

func (c *wireConn) end() {
	if c.ends.Add(1) == 2 {
		_ = c.Conn.Close()
	}
}

// broken is the error of a connection that breaks.
func broken(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Err: os.NewSyscallError(op, err)}
}
