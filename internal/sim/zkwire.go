package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/zookeeper"
)

// The protocol of ZooKeeper (zookeeper.jute of its sources), with the requests that the driver and its client send, and how a
// process connects.

// jute reads a message.
type jute struct{ b []byte }

func (j *jute) take(n int) (b []byte) { b, j.b = j.b[:max(0, n)], j.b[max(0, n):]; return b }
func (j *jute) int() int32            { return int32(binary.BigEndian.Uint32(j.take(4))) } //nolint:gosec // as it was sent
func (j *jute) long() int64           { return int64(binary.BigEndian.Uint64(j.take(8))) } //nolint:gosec // as it was sent
func (j *jute) bool() bool            { return j.take(1)[0] != 0 }
func (j *jute) text() string          { return string(j.take(int(j.int()))) }

func (j *jute) texts() (all []string) {
	for range j.int() {
		all = append(all, j.text())
	}
	return all
}

// juteOf writes a message.
func juteOf(values ...any) (b []byte) {
	for _, v := range values {
		switch v := v.(type) {
		case []byte: // of a message already
			b = append(b, v...)
		case string:
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...) //nolint:gosec // short
		case []string:
			b = binary.BigEndian.AppendUint32(b, uint32(len(v))) //nolint:gosec // few
			for _, s := range v {
				b = append(b, juteOf(s)...)
			}
		case int:
			b = binary.BigEndian.AppendUint32(b, uint32(v)) //nolint:gosec // 32 bits
		default: // of fixed size
			b, _ = binary.Append(b, binary.BigEndian, v)
		}
	}
	return b
}

func framed(b []byte) []byte { return append(juteOf(len(b)), b...) }

// Requests, by their numbers.
const (
	zkCreate, zkDelete, zkExists, zkGet, zkSet, zkSync = 1, 2, 3, 4, 5, 9
	zkPing, zkChildren, zkCheck, zkMulti, zkSetWatches = 11, 12, 13, 14, 101
	zkClose                                            = -11
)

// zkOp is a part of a transaction.
type zkOp struct {
	code    int32
	path    string
	data    []byte
	flags   int32
	version int32
}

// zkOps reads a transaction.
func zkOps(in *jute) (ops []zkOp) {
	for {
		op := zkOp{code: in.int()}
		if done, _ := in.bool(), in.int(); done {
			return ops
		}
		op.path = in.text()
		switch op.code {
		case zkCreate:
			op.data = []byte(in.text())
			for range in.int() { // the ACL
				_, _, _ = in.int(), in.text(), in.text()
			}
			op.flags = in.int()
		case zkSet:
			op.data, op.version = []byte(in.text()), in.int()
		default:
			op.version = in.int()
		}
		ops = append(ops, op)
	}
}

// splitZK cuts off the first request, and says before it what it does.
func splitZK(sent []byte) (req, rest []byte) {
	if len(sent) < 4 {
		return nil, sent
	}
	n := 4 + int(binary.BigEndian.Uint32(sent))
	if len(sent) < n {
		return nil, sent
	}
	return slices.Concat([]byte(nameOfZK(sent[:n])), []byte{0}, sent[4:n]), sent[n:]
}

// nameOfZK says what a request does.
func nameOfZK(req []byte) (name string) {
	if len(req) > 0 && req[0] != 0 { // splitZK has said it
		before, _, _ := bytes.Cut(req, []byte{0})
		return string(before)
	}
	in := &jute{req[4:]}
	xid, op := in.int(), in.int()
	if xid == 0 {
		return "connect"
	}
	switch op {
	case zkPing:
		return "beat"
	case zkClose:
		return "close"
	case zkSetWatches:
		return "watches"
	case zkMulti:
		name = "txn"
		for _, op := range zkOps(in) {
			name += map[int32]string{zkCreate: " put:", zkDelete: " delete:", zkSet: " set:", zkCheck: " check:"}[op.code] + op.path
		}
		return name
	}
	return map[int32]string{zkExists: "exists ", zkGet: "get ", zkChildren: "children ", zkSync: "sync "}[op] + in.text()
}

// zkLink is a connection, at the server.
type zkLink struct {
	m *zkMember
	c *conn

	// ensemble.mu guards these.
	session     int64
	ended       bool
	data, child map[string]bool // what is watched
}

// send sends something, after what was sent before.
func (l *zkLink) send(b []byte) { l.c.push(framed(b), 0) }

// end closes the connection, when what was sent has arrived. With ensemble.mu held.
func (l *zkLink) end() {
	if l.ended {
		return
	}
	l.ended = true
	at, _ := l.c.p.arrival(l.m.z.rnd)
	l.c.mu.Lock()
	at = l.c.p.w.unique(latest(at, l.c.answers.Add(1)))
	l.c.mu.Unlock()
	time.AfterFunc(time.Until(at), func() { l.c.fail(errReset) })
}

// report reports a change, if it is watched. With ensemble.mu held.
func (l *zkLink) report(c zkChange) {
	event := func(watched bool, of zk.EventType, path string) {
		if watched {
			l.send(juteOf(-1, int64(-1), 0, int32(of), 3, path))
		}
	}
	if c.event == 0 {
		return
	}
	watched := l.data[c.path] || c.event == zk.EventNodeDeleted && l.child[c.path]
	delete(l.data, c.path)
	event(watched, c.event, c.path)
	if c.event != zk.EventNodeDataChanged {
		delete(l.child, c.path)
		event(l.child[parentOf(c.path)], zk.EventNodeChildrenChanged, parentOf(c.path))
		delete(l.child, parentOf(c.path))
	}
}

// ask has a request come to the leader, in its turn. It reports false if the connection ends meanwhile.
func (l *zkLink) ask() bool {
	m, z := l.m, l.m.z
	z.mu.Lock()
	m.forwards = z.s.w.unique(latest(time.Now().Add(z.rnd.upTo(2*time.Millisecond)), m.forwards))
	at := m.forwards
	z.mu.Unlock()
	time.Sleep(time.Until(at))
	for {
		z.mu.Lock()
		refuses, until := m.refuses(), m.cut
		if m.isCutOff() && m.noticed.Before(until) {
			until = m.noticed
		}
		if refuses {
			l.end()
		}
		z.mu.Unlock()
		if refuses || !until.After(time.Now()) {
			return !refuses
		}
		z.s.w.sleep(time.Until(until))
	}
}

// serve answers one request.
func (l *zkLink) serve(req []byte) []byte {
	what, body, _ := bytes.Cut(req, []byte{0})
	in, z := &jute{body}, l.m.z
	xid, op := in.int(), in.int()
	if xid == 0 {
		return l.connect(&jute{body[4:]})
	}
	z.mu.Lock()
	s := z.sessions[l.session]
	if l.ended || l.m.refuses() {
		l.end()
		z.mu.Unlock()
		return nil
	}
	if s != nil {
		l.m.touch(s)
	}
	leads := l.m.isCutOff() && l.m.deposed // as it believes
	z.mu.Unlock()
	if op == zkClose || op == zkMulti || op == zkSync && !leads {
		if !l.ask() {
			return nil
		}
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	answer, code := []byte(nil), int32(0)
	switch op {
	case zkMulti, zkClose:
		switch s := z.sessions[l.session]; {
		case s == nil:
			code = zkExpired
		case s.owner != l.m: // the session has moved
			l.end()
			return nil
		case op == zkMulti:
			if time.Since(l.m.cut) < z.tick { // what it has heard meanwhile comes with this
				z.extend(s)
			}
			answer = z.multi(s, string(what), zkOps(in))
		default:
			z.end(s)
		}
		l.m.apply(len(z.log))
	case zkSync:
		if !l.m.isCutOff() {
			l.m.apply(len(z.log))
		}
		answer = juteOf(in.text())
	case zkSetWatches:
		l.watch(in)
	case zkExists, zkGet, zkChildren:
		answer, code = l.read(op, in.text(), in.bool())
	case zkPing:
	default:
		panic(fmt.Sprint("sim: ZooKeeper: an unknown request: ", op))
	}
	return framed(juteOf(xid, l.m.last(), code, answer))
}

// read answers a reading. With ensemble.mu held.
func (l *zkLink) read(op int32, path string, watch bool) (answer []byte, code int32) {
	n := l.m.tree[path]
	switch {
	case n == nil:
		return nil, zkNoNode
	case op == zkChildren:
		if watch {
			l.child[path] = true
		}
		names := children(l.m.tree, path)
		slices.Reverse(names) // a server has no order
		return juteOf(names, n.stat), 0
	case watch:
		l.data[path] = true
	}
	if op == zkGet {
		answer = juteOf(string(n.data))
	}
	return juteOf(answer, n.stat), 0
}

// watch sets watches again, after a reconnect. With ensemble.mu held.
func (l *zkLink) watch(in *jute) {
	seen := in.long()
	for _, path := range in.texts() {
		switch n := l.m.tree[path]; {
		case n == nil:
			l.send(juteOf(-1, int64(-1), 0, int32(zk.EventNodeDeleted), 3, path))
		case n.stat.Mzxid > seen:
			l.send(juteOf(-1, int64(-1), 0, int32(zk.EventNodeDataChanged), 3, path))
		default:
			l.data[path] = true
		}
	}
	if exist := in.texts(); len(exist) > 0 {
		panic("sim: ZooKeeper: watches on nodes that are not there")
	}
	for _, path := range in.texts() {
		switch n := l.m.tree[path]; {
		case n == nil:
			l.send(juteOf(-1, int64(-1), 0, int32(zk.EventNodeDeleted), 3, path))
		case n.stat.Pzxid > seen:
			l.send(juteOf(-1, int64(-1), 0, int32(zk.EventNodeChildrenChanged), 3, path))
		default:
			l.child[path] = true
		}
	}
}

// multi does a transaction. With mu held.
func (z *ensemble) multi(s *zkSession, what string, ops []zkOp) (answer []byte) {
	e, failed, why := z.edit(), -1, int32(0)
	for i, op := range ops {
		var result []byte
		var made string
		var stat zk.Stat
		code := int32(0)
		switch op.code {
		case zkCreate:
			made, code = e.create(op.path, op.data, op.flags, s.id)
			result = juteOf(made)
		case zkDelete:
			code = e.remove(op.path, op.version)
		case zkSet:
			stat, code = e.set(op.path, op.data, op.version)
			result = juteOf(stat)
		case zkCheck:
			_, code = e.check(op.path, op.version)
		}
		if code != 0 {
			failed, why = i, code
			break
		}
		answer = append(answer, juteOf(op.code, false, 0, result)...)
	}
	if failed >= 0 {
		answer = nil
		for i := range ops {
			code := why
			if i < failed {
				code = 0
			} else if i > failed {
				code = zkInconsistent
			}
			answer = append(answer, juteOf(-1, false, code, code)...)
		}
		e.nodes, e.changes = nil, nil
	}
	z.s.w.message("%s: %s in session %d of %s: %x %d", z.s.name, what, s.id, s.owner.p.process, e.zxid, why)
	z.commit(e, 0)
	return append(answer, juteOf(-1, true, -1)...)
}

// connect answers the first request of a connection.
func (l *zkLink) connect(in *jute) []byte {
	m, z := l.m, l.m.z
	seen, _, id := in.long(), in.int(), in.long()
	z.mu.Lock()
	for _, other := range m.links {
		if id != 0 && other.session == id {
			other.end()
		}
	}
	m.follow()
	refused := l.ended || m.refuses() || seen > m.last()
	if refused {
		l.end()
	}
	z.mu.Unlock()
	if refused || !l.ask() {
		return nil
	}
	z.mu.Lock()
	defer z.mu.Unlock()
	s := z.sessions[id]
	if id == 0 {
		z.made++
		s = &zkSession{id: z.made, heard: time.Now()}
		z.sessions[s.id] = s
		z.commit(z.edit(), 0)
		m.apply(len(z.log))
	}
	password := string(make([]byte, 16))
	if s == nil {
		defer l.end()
		return framed(juteOf(0, 0, int64(0), password))
	}
	z.s.w.message("%s: server %d has the session %d of %s", z.s.name, m.index, s.id, m.p.process)
	s.owner, l.session, m.links = m, s.id, append(m.links, l)
	z.extend(s)
	m.touch(s)
	return framed(juteOf(0, int(z.timeout/time.Millisecond), s.id, password))
}

// zkWay connects a process: it is the client's dialer, its list of servers, and its logger.
type zkWay struct {
	z       *ensemble
	p       *path
	servers []*zkMember
	next    int
	last    int // that had a session; -1: none yet
}

// Init, Len, Next and Connected implement zk.HostProvider, as that of the client does, but for the random order.
func (*zkWay) Init([]string) error { return nil }
func (w *zkWay) Len() int          { return len(w.servers) }
func (w *zkWay) Connected()        { w.last = w.next }

func (w *zkWay) Next() (server string, pause bool) {
	w.next = (w.next + 1) % len(w.servers)
	pause = w.next == w.last
	w.last = max(w.last, 0)
	return fmt.Sprint(w.next), pause
}

// Printf implements zk.Logger.
func (*zkWay) Printf(string, ...any) {}

// dial is a zk.Dialer.
func (w *zkWay) dial(string, string, time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	l := &zkLink{m: w.servers[w.next], data: make(map[string]bool), child: make(map[string]bool)}
	c, err := w.p.dial(ctx, l.serve, splitZK)
	if err != nil {
		return nil, err
	}
	l.c = c.(*conn)
	l.c.name = nameOfZK
	return &zkConn{l.c, time.Now().Add(w.z.timeout * 2 / 3), false}, nil
}

// zkConn is a connection that waits for its first answer for no longer than for others, as package zookeeper asks of
// who makes the connection.
type zkConn struct {
	*conn
	until    time.Time
	answered bool
}

func (c *zkConn) SetReadDeadline(t time.Time) error {
	if !c.answered && t.After(c.until) {
		t = c.until
	}
	c.answered = c.answered || t.IsZero()
	return c.conn.SetReadDeadline(t)
}

// zkDriver is deeper in ownedZK than what checks its answers.
type zkDriver struct{ *zookeeper.Driver }

// ownedZK closes its connection, as a driver does that is opened by URL.
type ownedZK struct {
	*contract
	zkDriver
	conn *zk.Conn
}

func (d ownedZK) Close() error {
	err := d.contract.Close()
	closed := make(chan struct{})
	go func() {
		d.conn.Close()
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(100 * time.Millisecond): // the client waits for a second
	}
	return err
}

func openEnsemble(s *server, process string) (driver.Driver, *path, error) {
	z, p := s.model.(*ensemble), newPath(s, process)
	way := &zkWay{z, p, z.join(p), newStream(s.w.seed, "first server "+process).n(3), -1}
	p.deposed = func() { // it concerns the server that has the session
		p.mu.Lock()
		until := p.stale
		p.mu.Unlock()
		z.mu.Lock()
		defer z.mu.Unlock()
		for _, m := range way.servers {
			if slices.ContainsFunc(m.links, func(l *zkLink) bool { return !l.ended && !l.c.failed() }) {
				m.isolate(until)
			}
		}
	}
	conn, events, err := zk.Connect([]string{s.name}, z.asks, zk.WithDialer(way.dial), zk.WithHostProvider(way), zk.WithLogger(way), zk.WithLogInfo(false),
		zk.WithMaxBufferSize(256<<10), zk.WithMaxConnBufferSize(64<<10))
	if err != nil {
		return nil, nil, err
	}
	d, err := zookeeper.New(conn, events)
	return ownedZK{&contract{w: s.w, m: z, d: d, process: process, again: newStream(s.w.seed, "again").one(2), hasty: newStream(s.w.seed, "hasty").one(2)}, zkDriver{d}, conn}, p, err
}
