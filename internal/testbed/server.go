package testbed

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// Server is one real server. Its methods may be called from any goroutine;
// those that change the server's state fail the test when they cannot do so.
type Server struct {
	tb     testing.TB
	kind   *kind
	addr   string
	url    string
	shared bool
	inst   *process // nil when the server is somebody else's
	opts   options
}

// Addr returns the server's host:port. It stays the same over restarts.
func (s *Server) Addr() string { return s.addr }

// URL returns the server's URL as locker.Open takes it.
func (s *Server) URL() string { return s.url }

// CanFault tells whether the server can be killed and paused: it is the
// test's own, and was started by the testbed.
func (s *Server) CanFault() bool { return s.inst != nil && !s.shared }

// Kill ends the server with SIGKILL, and returns when it is gone. Killing a
// server that is down does nothing.
func (s *Server) Kill() { s.tb.Helper(); s.must("kill", (*process).stop) }

// Pause freezes the server with SIGSTOP: its connections stay open and its
// port accepts more, and nothing is answered.
func (s *Server) Pause() { s.tb.Helper(); s.must("pause", (*process).pause) }

// Resume lets a paused server go on.
func (s *Server) Resume() { s.tb.Helper(); s.must("resume", (*process).resume) }

// Start starts the server again after [Server.Kill], on the same port and
// data folder, and returns when it answers.
func (s *Server) Start() {
	s.tb.Helper()
	s.must("start", (*process).start)
	s.Wait()
}

// Restart is Kill and Start. Arguments are added to the server's command line, as [Args] does, from then on.
func (s *Server) Restart(args ...string) {
	s.tb.Helper()
	s.Kill()
	if s.inst != nil {
		s.inst.node.opts.args = append(s.inst.node.opts.args, args...)
	}
	s.Start()
}

// Wait returns when the server answers, which [Server.Start] has waited for
// already.
func (s *Server) Wait() {
	s.tb.Helper()
	if err := s.await(); err != nil {
		s.tb.Fatal(err)
	}
}

// Log returns the end of what the server has printed.
func (s *Server) Log() string {
	if s.inst == nil {
		return ""
	}
	return s.inst.log()
}

// Proxy returns a proxy in front of the server, which lives as long as tb.
func (s *Server) Proxy(tb testing.TB) *Proxy {
	tb.Helper()
	p := NewProxy(tb, s.addr)
	p.url = strings.Replace(s.url, s.addr, p.Addr(), 1)
	return p
}

func (s *Server) must(verb string, f func(*process) error) {
	s.tb.Helper()
	if !s.CanFault() {
		s.tb.Fatalf("testbed: cannot %s the %s server at %s: it is not this test's own (ask for testbed.Faults, see CanFault)", verb, s.kind.name, s.addr)
	}
	if err := f(s.inst); err != nil {
		s.tb.Fatalf("testbed: %s %s at %s: %v", verb, s.kind.name, s.addr, err)
	}
}

// await polls the server until it answers. Pauses and tries are short at first
// because a start is short, a few milliseconds for most servers; and a question
// put to a server that is not ready yet may be answered late.
func (s *Server) await() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	pause, limit := time.Millisecond, 100*time.Millisecond
	for ; ; pause = min(2*pause, 20*time.Millisecond) {
		try, cancelTry := context.WithTimeout(ctx, limit)
		err := s.kind.ready(try, s.addr, s.opts)
		if try.Err() != nil { // or the machine is too busy for such haste
			limit = min(2*limit, 5*time.Second)
		}
		cancelTry()
		switch {
		case err == nil:
			return nil
		case s.inst != nil && s.inst.ended():
			return fmt.Errorf("testbed: %s at %s ended before it answered; its log ends:\n%s", s.kind.name, s.addr, s.Log())
		case ctx.Err() != nil:
			return fmt.Errorf("testbed: %s at %s does not answer (%w); its log ends:\n%s", s.kind.name, s.addr, err, s.Log())
		}
		time.Sleep(pause)
	}
}

// private returns a server for one test, stopped by its Cleanup.
func (k *kind) private(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	o := newOptions(opts)
	if (o.certs != nil || o.management != "") && !k.secures {
		tb.Fatalf("testbed: %s: TLS and ACL are for etcd and Consul", k.name)
	}
	if s := k.external(tb); s != nil && !o.private() {
		return s
	}
	s, err := k.launch(&node{opts: o})
	if err != nil {
		k.missing(tb, err)
	}
	s.own(tb)
	s.begin()
	s.Wait()
	return s
}

// own stops the server when tb ends.
func (s *Server) own(tb testing.TB) {
	s.tb = tb
	tb.Cleanup(func() {
		if err := s.inst.stop(); err != nil {
			tb.Errorf("testbed: stop %s at %s: %v", s.kind.name, s.addr, err)
		}
		if tb.Failed() {
			tb.Logf("testbed: the log of %s at %s ends:\n%s", s.kind.name, s.addr, s.Log())
		}
		s.inst.remove()
	})
}

// begin starts the server for the first time.
func (s *Server) begin() {
	s.tb.Helper()
	if err := s.inst.start(); err != nil {
		s.tb.Fatalf("testbed: start %s: %v", s.kind.name, err)
	}
}

// launch makes the server that n describes, and does not start it. The error is why it is
// not to be had.
func (k *kind) launch(n *node) (*Server, error) {
	var err error
	if n.bin, err = k.program(); err != nil {
		return nil, err
	}
	p, err := newProcess(k, n)
	if err != nil {
		return nil, err
	}
	return k.server(p, n), nil
}

func (k *kind) server(inst *process, n *node) *Server {
	addr := n.addr(0)
	s := &Server{kind: k, addr: addr, url: k.urlOf(addr), inst: inst, opts: n.opts}
	if c := n.opts.certs; c != nil {
		s.url = c.url(k.scheme, addr)
	}
	return s
}

// external returns the server that the environment names, if any.
func (k *kind) external(tb testing.TB) *Server {
	tb.Helper()
	v := os.Getenv(k.env())
	if v == "" {
		return nil
	}
	u, err := url.Parse(v)
	if err != nil || u.Host == "" {
		tb.Fatalf("testbed: %s is not a URL with a host", k.env()) // it may hold a password: not shown
	}
	s := &Server{tb: tb, kind: k, addr: u.Host, url: v}
	if k.addr != nil {
		s.addr = k.addr(u)
	}
	return s
}

// shared holds the servers that serve the whole test process: a *sharedServer by name.
var shared sync.Map

type sharedServer struct {
	once    sync.Once
	server  *Server
	missing error // there is none
	broken  error // there is one, and it does not start
}

// share returns the one server of its kind that lasts until the test
// process ends.
func (k *kind) share(tb testing.TB) *Server {
	tb.Helper()
	if s := k.external(tb); s != nil {
		return s
	}
	there, _ := shared.LoadOrStore(k.name, new(sharedServer))
	sh := there.(*sharedServer) //nolint:forcetypeassert // nothing else is stored
	sh.once.Do(func() { sh.start(k) })
	if sh.missing != nil {
		k.missing(tb, sh.missing)
	}
	if sh.broken != nil {
		tb.Fatal(sh.broken)
	}
	s := *sh.server
	s.tb, s.shared = tb, true
	return &s
}

func (sh *sharedServer) start(k *kind) {
	if sh.server, sh.missing = k.launch(&node{}); sh.missing != nil {
		return
	}
	if sh.broken = sh.server.inst.start(); sh.broken == nil {
		sh.broken = sh.server.await()
	}
}
