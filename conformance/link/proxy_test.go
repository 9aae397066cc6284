package link

import (
	"bufio"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// echo answers each line with the same, and records what has reached it.
type echo struct {
	addr string
	mu   sync.Mutex
	seen []string
	wg   sync.WaitGroup
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{addr: l.Addr().String()}
	e.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			e.wg.Go(func() { e.serve(c) })
		}
	})
	t.Cleanup(func() { _ = l.Close(); e.wg.Wait() })
	return e
}

func (e *echo) serve(c net.Conn) {
	defer c.Close()
	for s := bufio.NewScanner(c); s.Scan(); {
		e.mu.Lock()
		e.seen = append(e.seen, s.Text())
		e.mu.Unlock()
		if _, err := c.Write([]byte(s.Text() + "\n")); err != nil {
			return
		}
	}
}

// has waits until line has reached the server.
func (e *echo) has(t *testing.T, line string) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		e.mu.Lock()
		seen := strings.Join(e.seen, " ")
		e.mu.Unlock()
		if strings.Contains(seen, line) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%q has not arrived, only %q", line, seen)
		}
	}
}

type client struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, addr string) *client {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return &client{t, c, bufio.NewReader(c)}
}

func (c *client) send(line string) {
	c.t.Helper()
	if _, err := c.Write([]byte(line + "\n")); err != nil {
		c.t.Fatal(err)
	}
}

// expect reads one line, which must come.
func (c *client) expect(line string) {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	if got, err := c.r.ReadString('\n'); got != line+"\n" {
		c.t.Fatalf("got %q, %v; want %q", got, err, line)
	}
}

func (c *client) expectSilence() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	_, err := c.r.ReadByte()
	if ne := net.Error(nil); !errors.As(err, &ne) || !ne.Timeout() {
		c.t.Fatalf("got %v; want silence", err)
	}
}

func (c *client) expectReset() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, err := c.r.ReadByte()
	if ne := net.Error(nil); err == nil || errors.As(err, &ne) && ne.Timeout() {
		c.t.Fatalf("got %v; want a reset", err)
	}
}

// lost waits until a connection has lost bytes.
func lost(t *testing.T, p *Proxy) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); p.Stats().Lost == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing was lost")
		}
	}
}

func TestProxyCut(t *testing.T) {
	e := newEcho(t)
	p := NewProxy(t, e.addr)
	c := dial(t, p.Addr())
	c.send("one")
	c.expect("one")
	p.Cut()
	c.send("two")
	fresh := dial(t, p.Addr()) // accepted, and no more
	fresh.send("three")
	c.expectSilence()
	fresh.expectSilence()
	p.Heal()
	c.expect("two")
	fresh.expect("three")
	if st := p.Stats(); st.Conns != 2 || st.Open != 2 || st.Requests != 14 || st.Replies != 14 {
		t.Errorf("counted %+v", st)
	}
}

// A client that gives up during a cut does not take its request back.
func TestProxyCutDeliversLate(t *testing.T) {
	e := newEcho(t)
	p := NewProxy(t, e.addr)
	c := dial(t, p.Addr())
	c.send("one")
	c.expect("one")
	p.Cut()
	c.send("late")
	_ = c.Close()
	p.Heal()
	e.has(t, "late")
}

func TestProxyLose(t *testing.T) {
	e := newEcho(t)
	p := NewProxy(t, e.addr)
	idle, c := dial(t, p.Addr()), dial(t, p.Addr())
	idle.send("one")
	idle.expect("one")
	p.Lose()
	c.send("gone")
	lost(t, p)
	c.expectSilence()
	p.Heal()
	c.expectReset()
	idle.send("two") // has lost nothing
	idle.expect("two")
	e.mu.Lock()
	defer e.mu.Unlock()
	if slices.Contains(e.seen, "gone") {
		t.Error("a lost request has reached the server")
	}
}

func TestProxyHoldReplies(t *testing.T) {
	e := newEcho(t)
	p := NewProxy(t, e.addr)
	c := dial(t, p.Addr())
	p.HoldReplies(true)
	c.send("one")
	e.has(t, "one")
	c.expectSilence()
	p.HoldReplies(false)
	c.expect("one")
}

func TestProxyDropReplies(t *testing.T) {
	e := newEcho(t)
	p := NewProxy(t, e.addr)
	c, idle := dial(t, p.Addr()), dial(t, p.Addr())
	idle.send("zero")
	idle.expect("zero")
	p.DropReplies(true)
	c.send("one")
	lost(t, p)
	e.has(t, "one")
	c.expectSilence()
	p.DropReplies(false)
	c.expectReset() // it has lost bytes
	idle.send("two")
	idle.expect("two")
}

func TestProxyLoseReply(t *testing.T) {
	e := newEcho(t)
	p := NewProxy(t, e.addr)
	c, other := dial(t, p.Addr()), dial(t, p.Addr())
	dropped := p.LoseReply("secret")
	other.send("hello")
	other.expect("hello")
	c.send("the secret word")
	<-dropped
	e.has(t, "secret")
	c.expectReset()
	other.send("the secret word") // only the first
	other.expect("the secret word")
}

func TestProxyRefuse(t *testing.T) {
	e := newEcho(t)
	p := NewProxy(t, e.addr)
	c := dial(t, p.Addr())
	c.send("one")
	c.expect("one")
	p.Refuse()
	c.expectReset()
	if c, err := net.Dial("tcp", p.Addr()); err == nil {
		_ = c.Close()
		t.Error("a refusing proxy accepts")
	}
	p.Heal()
	c = dial(t, p.Addr())
	c.send("two")
	c.expect("two")
	p.Reset()
	c.expectReset()
}

func TestProxyDelay(t *testing.T) {
	e := newEcho(t)
	p := NewProxy(t, e.addr)
	c := dial(t, p.Addr())
	p.Delay(30 * time.Millisecond)
	t0 := time.Now()
	c.send("one")
	c.expect("one")
	if d := time.Since(t0); d < 60*time.Millisecond {
		t.Errorf("there and back in %v", d)
	}
}

// All methods at once, for the race detector, and none hangs.
func TestProxyConcurrent(t *testing.T) {
	e := newEcho(t)
	p := NewProxy(t, e.addr)
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				c, err := net.Dial("tcp", p.Addr())
				if err != nil {
					continue
				}
				_ = c.SetDeadline(time.Now().Add(2 * time.Millisecond))
				_, _ = c.Write([]byte("x\n"))
				_, _ = c.Read(make([]byte, 8))
				_ = c.Close()
			}
		})
	}
	for range 50 {
		for _, f := range []func(){
			p.Cut, p.Heal, p.Refuse, p.Heal, p.Reset, func() { p.DropReplies(true) },
			func() { p.Stats() }, func() { p.LoseReply("x") }, func() { p.Delay(time.Millisecond) }, p.Heal,
		} {
			f()
		}
	}
	close(stop)
	wg.Wait()
	c := dial(t, p.Addr())
	c.send("end")
	c.expect("end")
}
