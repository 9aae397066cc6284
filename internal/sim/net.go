package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// path is the network between one process and one server.
type path struct {
	w       *world
	s       *server
	process string
	rnd     *stream
	usual   time.Duration // the delay of most messages
	made    time.Time

	mu      sync.Mutex
	cut     time.Time // nothing gets through until then
	stale   time.Time // until then a server answers that does not know that it was deposed
	slow    time.Time // everything takes up to a second until then
	stalled time.Time // streams that were begun before are silent, and nobody knows
	deposed func()    // is called when stale is set; may be nil
	dead    bool      // the process has died: nothing gets through any more

	tricked map[string]time.Time // until when each trick is played

	conns map[interface{ fail(error) }]struct{}
	dials int
	asked map[string]int // how often each request was sent
}

func newPath(s *server, process string) *path {
	p := &path{w: s.w, s: s, process: process, rnd: newStream(s.w.seed, "path "+process+" "+s.name), conns: make(map[interface{ fail(error) }]struct{}), asked: make(map[string]int)}
	p.made = time.Now()
	p.usual = p.rnd.between(50*time.Microsecond, 5*time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, earlier := range s.paths {
		if earlier.process == process { // of an earlier life: the same machine, and the same network
			p.inherit(earlier)
		}
	}
	s.paths = append(s.paths, p)
	return p
}

// inherit takes over what the network does.
func (p *path) inherit(from *path) {
	from.mu.Lock()
	defer from.mu.Unlock()
	p.cut, p.stale, p.slow, p.tricked = from.cut, from.stale, from.slow, maps.Clone(from.tricked)
}

var (
	errReset   = &net.OpError{Op: "read", Net: "sim", Err: syscall.ECONNRESET}
	errSilence = &net.OpError{Op: "read", Net: "sim", Err: syscall.ETIMEDOUT}
	errRefused = &net.OpError{Op: "dial", Net: "sim", Err: syscall.ECONNREFUSED}
)

// arrival draws when a message that is sent now arrives. held says that the path is cut:
// the message may not arrive at all.
func (p *path) arrival(rnd *stream) (at time.Time, held bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	d := p.usual/2 + rnd.upTo(p.usual)
	if rnd.one(50) {
		d += rnd.upTo(20 * time.Millisecond)
	}
	if p.slow.After(now) {
		d += rnd.upTo(time.Second)
	}
	if p.cut.After(now) {
		return p.cut.Add(d), true
	}
	return now.Add(d), false
}

// stream returns the random numbers of one request. They depend on what it asks, and on
// how often that was asked before, and not on what else is asked at the same instant.
func (p *path) stream(what string) *stream {
	if f := strings.Fields(what); len(f) > 2 {
		what = f[0] + f[1] // the rest has random IDs
	}
	p.mu.Lock()
	p.asked[what]++
	n := p.asked[what]
	p.mu.Unlock()
	return newStream(p.w.seed, fmt.Sprint(p.process, p.s.name, what, n))
}

func (p *path) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}

// kill ends the process: nothing gets through any more, not even what is under way.
func (p *path) kill() {
	p.mu.Lock()
	p.dead = true
	p.mu.Unlock()
	p.reset()
}

// reset ends all connections.
func (p *path) reset() {
	p.mu.Lock()
	var open []interface{ fail(error) }
	for c := range p.conns {
		open = append(open, c)
	}
	p.mu.Unlock()
	for _, c := range open {
		c.fail(errReset)
	}
}

// patience is how long Linux sends a message again to somebody who does not acknowledge
// it: tcp_retries2 of tcp(7).
const patience = 924600 * time.Millisecond

// request sends one request over a connection of its own, and has the server serve it.
// Serve runs at the server, in its own goroutine; its context ends some time after the
// caller has gone. If ctx ends, or the connection fails, the request may still be
// served, later.
func request[T any](ctx context.Context, p *path, what string, serve func(context.Context) T) (answer T, err error) {
	if ctx.Err() != nil {
		return answer, ctx.Err()
	}
	if p.isDead() {
		return answer, errReset
	}
	type result struct {
		answer T
		err    error
	}
	got := make(chan result, 1) // of the one result there is
	done := make(chan struct{})
	defer close(done)
	one := p.passes(what, false)
	rnd := p.stream(what)
	at, vanishes := p.arrives(what, rnd)
	at = at.Add(one.late("hold"))
	p.w.message("%s → %s %s, arrives at %v%s", p.process, p.s.name, what, at.Sub(p.w.begun), map[bool]string{true: " never"}[vanishes])
	never := func() { p.w.at(time.Now().Add(patience), func() { got <- result{err: errSilence} }) }
	breaks := func() { p.w.at(time.Now().Add(one.lasts), func() { got <- result{err: errReset} }) }
	switch {
	case one.is("drop"):
		breaks()
	case vanishes:
		never()
	default:
		p.atOrWritten(at, one, "hold", func() {
			if !p.await() {
				got <- result{err: errReset}
				return
			}
			served, cancel := p.whileAsked(done)
			defer cancel()
			a := serve(served)
			p.passes(what, true)
			back, lost := p.returns(what, rnd)
			back = back.Add(one.late("keep"))
			if one.is("deaf") {
				breaks()
				return
			}
			if lost {
				p.w.message("%s ← %s %s: the answer is lost", p.process, p.s.name, what)
				never()
				return
			}
			p.atOrWritten(back, one, "keep", func() {
				p.w.message("%s ← %s %s: %.200v", p.process, p.s.name, what, a)
				got <- result{answer: a}
			})
		})
	}
	select {
	case r := <-got:
		return r.answer, r.err
	case <-ctx.Done():
		return answer, ctx.Err()
	}
}

// arrives draws when a request arrives that is sent now, or that it never does.
func (p *path) arrives(what string, rnd *stream) (at time.Time, vanishes bool) {
	at, held := p.arrival(rnd)
	if writes(what) && p.plays("lag", rnd) {
		at = at.Add(p.lag(rnd))
	}
	return at, held && rnd.one(2) || writes(what) && p.has("lose")
}

// returns draws when the answer to a request arrives that is sent now, or that it is lost.
func (p *path) returns(what string, rnd *stream) (at time.Time, lost bool) {
	at, held := p.arrival(rnd)
	if !writes(what) && p.plays("blur", rnd) {
		at = at.Add(rnd.between(5*time.Millisecond, 3*time.Second))
	}
	return at, held && rnd.one(2) || writes(what) && p.plays("mute", rnd)
}

// whileAsked returns the context in which a request is served. It ends some time after its
// caller has gone.
func (p *path) whileAsked(done <-chan struct{}) (context.Context, context.CancelFunc) {
	served, cancel := context.WithCancel(context.Background())
	go func() {
		select {
		case <-done:
			p.w.sleep(p.usual)
			cancel()
		case <-served.Done():
		}
	}()
	return served, cancel
}

// await waits until the server serves. It reports false if that is down, or the process dead.
func (p *path) await() bool {
	for {
		paused, down, _ := p.s.state()
		now := time.Now()
		switch {
		case p.isDead() || down.After(now):
			return false
		case paused.After(now):
			p.w.sleep(paused.Sub(now) + p.rnd.upTo(p.usual))
		default:
			return true
		}
	}
}

// conn is a connection that carries a stream of bytes: the client's end.
type conn struct {
	p     *path
	rnd   *stream
	gaps  *stream
	turn  chan struct{} // held while a packet is served: they keep their order
	serve func(request []byte) (answer []byte)
	split func(sent []byte) (request, rest []byte) // nil: no whole request yet
	greet func(request []byte) (answer []byte)     // answers at once what is asked while the client connects; may be nil
	name  func(request []byte) string              // says what a request does; nil: the request itself says it
	sends func(request []byte)                     // is called with what is sent; may be nil
	brief bool                                     // what was not sent when the client closes it is dropped within seconds

	mu       sync.Mutex
	sent     []byte
	received []byte
	err      error         // the client's end is closed
	drops    bool          // what was sent and has not arrived never will
	late     bool          // … or will arrive late
	stalls   *once         // of a message after which nothing gets through
	news     chan struct{} // there is something to read
	arrives  time.Time     // of the last request
	answers  time.Time     // of the last answer
	until    time.Time     // the deadline of reads
	ended    time.Time     // when it failed
}

// dial connects.
func (p *path) dial(ctx context.Context, serve func([]byte) []byte, split func([]byte) ([]byte, []byte)) (net.Conn, error) {
	p.mu.Lock()
	p.dials++
	rnd := newStream(p.w.seed, fmt.Sprint("conn ", p.process, p.s.name, p.dials))
	gaps := newStream(p.w.seed, fmt.Sprint("gaps ", p.process, p.s.name, p.dials))
	p.mu.Unlock()
	ok, err := request(ctx, p, "dial", func(context.Context) bool { return true })
	if errors.Is(err, errReset) || err == nil && !ok {
		err = errRefused
	}
	if err != nil {
		return nil, err
	}
	c := &conn{p: p, rnd: rnd, gaps: gaps, serve: serve, split: split, news: make(chan struct{}, 1), turn: make(chan struct{}, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = struct{}{}
	return c, nil
}

// connect connects without waiting, for clients that hold a mutex while they connect, which no
// bubble gets past. The first packet arrives later by as much as a handshake takes.
func (p *path) connect(serve func(*conn) func([]byte) []byte, split func([]byte) ([]byte, []byte), greet func([]byte) []byte) (net.Conn, error) {
	p.mu.Lock()
	p.dials++
	rnd := newStream(p.w.seed, fmt.Sprint("conn ", p.process, p.s.name, p.dials))
	gaps := newStream(p.w.seed, fmt.Sprint("gaps ", p.process, p.s.name, p.dials))
	p.mu.Unlock()
	if _, down, _ := p.s.state(); p.isDead() || down.After(time.Now()) {
		return nil, errRefused
	}
	c := &conn{
		p: p, rnd: rnd, gaps: gaps, split: split, greet: greet, brief: true,
		news: make(chan struct{}, 1), turn: make(chan struct{}, 1),
	}
	c.serve = serve(c)
	c.arrives, _ = p.arrival(rnd)
	c.arrives = c.arrives.Add(p.usual)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[c] = struct{}{}
	return c, nil
}

// what says what a request does.
func (c *conn) what(request []byte) string {
	if c.name != nil {
		return c.name(request)
	}
	return string(request)
}

// Write sends all whole requests as one packet.
func (c *conn) Write(b []byte) (int, error) {
	what := c.what(b)
	if c.sends != nil {
		c.sends(b)
	}
	one := c.p.passes(what, false)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	c.sent = append(c.sent, b...)
	var packet [][]byte
	for {
		req, rest := c.split(c.sent)
		if req == nil {
			break
		}
		c.sent = rest
		if c.greet != nil {
			if answer := c.greet(req); answer != nil {
				c.received = append(c.received, answer...)
				c.wake()
				continue
			}
		}
		packet = append(packet, req)
	}
	if len(packet) == 0 {
		return len(b), nil
	}
	if one.is("drop") || one.is("deaf") {
		c.stalls = one
		c.p.w.at(time.Now().Add(one.lasts), func() { c.fail(errReset) })
	}
	at, _ := c.p.arrival(c.rnd)
	if at = at.Add(one.late("hold")); !at.After(c.arrives) {
		at = c.arrives.Add(1)
	}
	at = c.p.w.unique(at)
	c.arrives = at
	time.AfterFunc(time.Until(at), func() { c.arrive(packet, one, false) })
	if writes(what) && c.p.plays("lag", c.rnd) { // the connection breaks, and something has kept what was sent
		c.late = true
		time.AfterFunc(time.Microsecond, func() { c.fail(errReset) })
	}
	return len(b), nil
}

// arrive has the server answer a packet. What was sent on a connection that has failed
// since may come late: something on the way has kept it.
func (c *conn) arrive(packet [][]byte, one *once, late bool) {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	c.mu.Lock()
	dropped, failed, lags, ended, stalls := c.drops, c.err != nil, c.late, c.ended, c.stalls
	c.mu.Unlock()
	const most = 3 * time.Second // for which it is kept
	switch {
	case stalls != nil && (stalls != one || one.is("drop")): // nothing of this or after it arrives
		return
	case lags && !late:
		lag := c.p.lag(c.rnd)
		if c.brief {
			lag = min(lag, most)
		}
		c.p.w.at(time.Now().Add(lag), func() { c.arrive(packet, one, true) })
		return
	case writes(string(packet[0])) && c.p.has("lose"):
		c.fail(errReset)
		return
	case dropped && !lags, failed && c.brief && time.Since(ended) > most:
		return
	case failed && !late && c.rnd.one(2):
		c.p.w.at(time.Now().Add(c.rnd.upTo(most)), func() { c.arrive(packet, one, true) })
		return
	}
	if !c.p.await() {
		c.fail(errReset)
		return
	}
	var answer []byte
	for _, req := range packet {
		a := c.serve(req)
		what := c.what(req)
		c.p.w.message("%s → %s %.80q: %.80q", c.p.process, c.p.s.name, what, a)
		answer = append(answer, a...)
		c.p.passes(what, true)
		if writes(what) && c.p.plays("mute", c.rnd) {
			c.fail(errReset)
			return
		}
		if len(packet) > 1 && c.gaps.one(20) { // the server has several threads
			c.p.w.sleep(c.gaps.upTo(2 * time.Millisecond))
		}
	}
	if one.is("deaf") {
		return
	}
	later := one.late("keep")
	if len(packet) > 0 && !writes(c.what(packet[0])) && c.p.plays("blur", c.rnd) {
		later += c.rnd.between(5*time.Millisecond, time.Second)
	}
	c.push(answer, later)
}

// push sends what the server has to say, perhaps later.
func (c *conn) push(answer []byte, later time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, _ := c.p.arrival(c.rnd)
	if at = at.Add(later); !at.After(c.answers) {
		at = c.answers.Add(1)
	}
	at = c.p.w.unique(at)
	c.answers = at
	time.AfterFunc(time.Until(at), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.err == nil && c.stalls == nil {
			c.received = append(c.received, answer...)
			c.wake()
		}
	})
}

// failed reports whether the connection has ended.
func (c *conn) failed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err != nil
}

func (c *conn) wake() {
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// fail ends the connection. What was sent and has not arrived may arrive all the same.
func (c *conn) fail(err error) {
	c.p.mu.Lock()
	delete(c.p.conns, c)
	c.p.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err, c.drops, c.ended = err, c.rnd.one(2), time.Now()
		c.wake()
	}
}

func (c *conn) Read(b []byte) (int, error) {
	for {
		c.mu.Lock()
		if len(c.received) > 0 {
			n := copy(b, c.received)
			c.received = c.received[n:]
			c.mu.Unlock()
			return n, nil
		}
		err, until := c.err, c.until
		c.mu.Unlock()
		if err != nil {
			return 0, err
		}
		if until.IsZero() {
			<-c.news
			continue
		}
		if !until.After(time.Now()) {
			return 0, os.ErrDeadlineExceeded
		}
		timer := time.NewTimer(time.Until(c.p.w.unique(until)))
		select {
		case <-c.news:
		case <-timer.C:
		}
		timer.Stop()
	}
}

func (c *conn) Close() error { c.fail(net.ErrClosed); return nil }

func (c *conn) LocalAddr() net.Addr            { return &net.UnixAddr{Name: c.p.process} }
func (c *conn) RemoteAddr() net.Addr           { return &net.UnixAddr{Name: c.p.s.name} }
func (c *conn) SetDeadline(t time.Time) error  { return c.SetReadDeadline(t) }
func (*conn) SetWriteDeadline(time.Time) error { return nil }

func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = t
	c.wake()
	return nil
}
