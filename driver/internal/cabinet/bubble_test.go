package cabinet_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/cabinet"
)

// inBubbles is a harness whose network is in memory, and whose cases run in bubbles of testing/synctest: waiting takes no
// time.
func inBubbles() conformance.Harness {
	srv := newBubbled()
	return conformance.Harness{
		Bubble: true,
		Open:   func(context.Context) (driver.Driver, error) { return srv.open() },
		OpenLink: func(context.Context) (driver.Driver, conformance.Link, error) {
			f := new(faults)
			d, err := srv.open(f)
			return d, f, err
		},
		Server:   srv,
		Keys:     func(context.Context) (int, error) { srv.renew(); return srv.count("locker"), nil },
		Complete: true,
	}
}

// epoch is when the clock of each bubble begins.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// bubbled is a Cabinet on a network in memory. What is shared by bubbles has no channels.
type bubbled struct {
	*server
	faults

	mu   sync.Mutex
	seen time.Time // on the clock of the present bubble
}

func newBubbled() *bubbled {
	return &bubbled{server: &server{docs: make(map[string]kept), began: epoch}}
}

// open opens a driver, over a path with these faults.
func (b *bubbled) open(faults ...*faults) (*cabinet.Driver, error) {
	d, err := cabinet.New("cabinet:8070")
	if err == nil {
		d.DialWith(func(context.Context) (net.Conn, error) { return b.dial(append(faults, &b.faults)) })
	}
	return d, err
}

// Kill, Start, Pause and Resume implement conformance.Server.
func (b *bubbled) Kill() {
	b.set(func(now *fault) { now.refuse = true })
	b.reset(func(*wire) bool { return true })
}
func (b *bubbled) Start()  { b.set(func(now *fault) { now.refuse = false }) }
func (b *bubbled) Pause()  { b.Cut() }
func (b *bubbled) Resume() { b.Heal() }

// renew empties the server if a bubble has begun: its clock has gone back.
func (b *bubbled) renew() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if now.Before(b.seen) {
		b.server.mu.Lock()
		clear(b.docs)
		b.server.mu.Unlock()
	}
	b.seen = now
}

// ServeHTTP answers one request.
func (b *bubbled) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.renew()
	b.server.ServeHTTP(w, r)
}

// dial connects to the server, over paths with these faults.
func (b *bubbled) dial(over []*faults) (net.Conn, error) {
	for _, f := range over {
		if f.get().refuse {
			return nil, &net.OpError{Op: "dial", Net: "memory", Err: syscall.ECONNREFUSED}
		}
	}
	near, client := net.Pipe()
	far, server := net.Pipe()
	w := &wire{Conn: client, over: over, near: near, far: far, left: make(chan struct{}), done: make(chan struct{})}
	for _, f := range over {
		f.mu.Lock()
		if f.wires == nil {
			f.wires = make(map[*wire]bool)
		}
		f.wires[w] = true
		f.mu.Unlock()
	}
	go w.carry(near, far, false)
	go w.carry(far, near, true)
	go func() { _ = http.Serve(&once{conn: server}, b) }() //nolint:gosec // it needs no timeouts
	return w, nil
}

// once is a listener with one connection.
type once struct{ conn net.Conn }

func (l *once) Accept() (c net.Conn, err error) {
	if c, l.conn = l.conn, nil; c == nil {
		return nil, io.EOF
	}
	return c, nil
}
func (*once) Close() error   { return nil }
func (*once) Addr() net.Addr { return &net.UnixAddr{Name: "cabinet"} }

// faults are those of a path. They implement conformance.Link.
type faults struct {
	mu    sync.Mutex
	now   fault
	wires map[*wire]bool
	waits []chan struct{} // each for a change of now
}

type fault struct{ cut, drop, refuse bool }

func (f *faults) get() fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.now
}

func (f *faults) set(change func(*fault)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.now)
	for _, c := range f.waits {
		close(c)
	}
	f.waits = nil
}

// healed returns a channel that is closed when the path may not be cut any more; nil: it is not cut.
func (f *faults) healed() <-chan struct{} {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.now.cut {
		return nil
	}
	c := make(chan struct{}) // of the present bubble
	f.waits = append(f.waits, c)
	return c
}

// reset ends connections.
func (f *faults) reset(which func(*wire) bool) {
	f.mu.Lock()
	var some []*wire
	for w := range f.wires {
		if which(w) {
			some = append(some, w)
		}
	}
	f.mu.Unlock()
	for _, w := range some {
		w.abort()
	}
}

func (f *faults) Cut() { f.set(func(now *fault) { now.cut = true }) }

func (f *faults) DropReplies(on bool) {
	f.set(func(now *fault) { now.drop = on })
	if !on {
		f.reset(func(w *wire) bool { return w.lost.Load() })
	}
}

func (f *faults) Heal() {
	f.set(func(now *fault) { now.cut = false })
	f.DropReplies(false)
}

// wire is a connection, and the client's end of it. near and far are where what it carries leaves the client, and the
// server.
type wire struct {
	net.Conn
	over      []*faults
	near, far net.Conn
	lost      atomic.Bool // a reply
	leave     sync.Once
	left      chan struct{} // closed when the client has closed it
	end       sync.Once
	done      chan struct{} // closed when it has ended
}

// Close closes the client's end. What it has sent may arrive nevertheless.
func (w *wire) Close() error {
	w.leave.Do(func() { close(w.left) })
	return w.Conn.Close()
}

// carry carries one direction.
func (w *wire) carry(from, to net.Conn, reply bool) {
	defer w.abort()
	data := make([]byte, 32<<10)
	for {
		n, err := from.Read(data)
		if err != nil || !w.pass(reply) {
			return
		}
		if reply && w.drops() {
			continue
		}
		if _, err := to.Write(data[:n]); err != nil {
			return
		}
	}
}

// pass waits until nothing keeps what was sent from arriving. A request takes a moment: otherwise no time would pass in
// a bubble.
func (w *wire) pass(reply bool) bool {
	if !reply {
		moment := time.NewTimer(100 * time.Microsecond)
		defer moment.Stop()
		select {
		case <-moment.C:
		case <-w.left: // a bubble that ends does not wait for timers
		}
	}
	for _, f := range w.over {
		for c := f.healed(); c != nil; c = f.healed() {
			select {
			case <-c:
			case <-w.done:
				return false
			}
		}
	}
	return true
}

// drops reports whether to drop a reply. Then the rest is dropped, too.
func (w *wire) drops() bool {
	if slices.ContainsFunc(w.over, func(f *faults) bool { return f.get().drop }) {
		w.lost.Store(true)
	}
	return w.lost.Load()
}

// abort ends the connection for both sides.
func (w *wire) abort() {
	w.end.Do(func() { close(w.done) })
	for _, f := range w.over {
		f.mu.Lock()
		delete(f.wires, w)
		f.mu.Unlock()
	}
	_ = w.near.Close()
	_ = w.far.Close()
}

// TestOverlapsWithClose proves that a request that is sent while the driver is closed leaves no connection (D17): the
// bubble would not end.
func TestOverlapsWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := newBubbled().open()
		if err == nil {
			err = d.Close()
		}
		if err == nil {
			err = d.Get(t.Context())
		}
		if err != nil {
			t.Error(err)
		}
	})
}
