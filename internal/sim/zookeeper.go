package sim

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// ensemble is a model of ZooKeeper 3.8: what its leader and its servers have (here), and its protocol (zkwire.go).
//
// Modelled are one tree, whose changes the leader decides one after the other; the czxid, the counters of changes, and of
// sequential nodes; ephemeral nodes; transactions; watches, which a server reports before the answer that shows the change;
// sessions, with the timeout that the server grants, and their end at a tick of the leader. Each process has three servers of its
// own, so that what is wrong with one concerns that process alone. A server shows what it has applied, which may be less than
// the leader has, except after a write, a sync, or the beginning of a session that came through it. It refuses a client that has
// seen more. It asks the leader about a session that comes from another one, and closes that session's earlier connection
// to itself. The leader refuses, and the server closes the connection, if a request comes by a server that the session has left.
// What was read before is done, if its session has not moved, whether or not anybody waits for the answer. The
// first server is the leader itself; the others report heartbeats twice a tick, and not if they die together with their client.
//
// A server may be cut off from the others (the fault "stale"): it shows what it knew, lets writes wait, answers a sync if it
// was the leader, and after some seconds closes its connections and takes no more. While there is no leader ("full") all servers
// do so. The next leader gives all sessions their full timeout.
//
// Not modelled: data that are lost, ACLs, quotas, containers, and who logs in; read-only servers and observers; a counter of
// sequential nodes that comes to its end; a leader that stands still and ends sessions before it has read what waits for
// it, and other things that package zookeeper excepts. The connection is a user's: those that the driver makes itself are not run.
type ensemble struct {
	s       *server
	rnd     *stream
	asks    time.Duration // the timeout that clients ask for
	timeout time.Duration // … that they get
	tick    time.Duration

	mu       sync.Mutex
	tree     map[string]*zkNode
	zxid     int64
	log      []zkTxn
	sessions map[int64]*zkSession
	made     int64 // sessions
	members  []*zkMember
	leader   time.Time // when the present one begins, or has begun
}

// zkNode is a node as one transaction has left it. It is read only.
type zkNode struct {
	data    []byte
	stat    zk.Stat
	creates int32 // of children: the number of the next sequential one
}

// zkTxn is a transaction.
type zkTxn struct {
	zxid    int64
	at      time.Time
	ends    int64 // the session that it ends
	changes []zkChange
}

type zkChange struct {
	path  string
	node  *zkNode      // nil: deleted
	event zk.EventType // 0: only its children have changed
}

// zkSession is a session as the leader knows it, and when its server has heard of it.
type zkSession struct {
	id      int64
	owner   *zkMember
	until   time.Time // it does not end before
	checks  bool      // whether it is over, later
	heard   time.Time // the last message
	resumed time.Time // when there was one after a longer silence than a client is to let pass
}

// zkMember is a server.
type zkMember struct {
	z     *ensemble
	p     *path
	index int
	lag   time.Duration // by which it is behind the leader, at the most

	// ensemble.mu guards these.
	tree     map[string]*zkNode
	applied  int // of the log
	applies  time.Time
	forwards time.Time // when the last request comes to the leader
	links    []*zkLink
	touched  map[int64]bool // sessions of which it has heard; to be reported
	reports  bool
	cut      time.Time // until then it is cut off from the others
	noticed  time.Time // … and knows
	deposed  bool      // … and was the leader
}

func newEnsemble(s *server) *ensemble {
	rnd := newStream(s.w.seed, s.name)
	z := &ensemble{
		s: s, rnd: rnd, asks: pick(rnd, 3*time.Second, 10*time.Second, 10*time.Second, 30*time.Second), tick: 2 * time.Second,
		tree: map[string]*zkNode{"/": {}}, zxid: 1 << 32, sessions: make(map[int64]*zkSession),
	}
	z.timeout = max(z.asks, 2*z.tick)
	if rnd.one(2) {
		z.tick = max(z.tick, z.timeout/5) // the longest that the driver assumes
	}
	return z
}

// leaseOfZK is how long a session is sure to last after a request that the leader has confirmed: the table in the comment of
// package zookeeper.
func leaseOfZK(timeout time.Duration) time.Duration {
	return timeout - timeout/3 - min(timeout/4, max(timeout/10, time.Second))
}

func (*ensemble) restart() bool { return false }

func parentOf(path string) string { return path[:max(1, strings.LastIndexByte(path, '/'))] }

// children returns the names of a node's children.
func children(tree map[string]*zkNode, path string) (names []string) {
	for child := range tree {
		if child != "/" && parentOf(child) == path {
			names = append(names, child[strings.LastIndexByte(child, '/')+1:])
		}
	}
	slices.Sort(names)
	return names
}

// zkTicket returns the name and the ID of the ticket that a node is; "" if it is none.
func zkTicket(path string) (name, id string) {
	parts := strings.Split(path, "/") // "", locker, name, node
	if len(parts) != 4 || parts[1] != "locker" {
		return "", ""
	}
	name, _ = url.PathUnescape(parts[2])
	id, _, _ = strings.Cut(parts[3], "_")
	return name, id
}

// ticketOf returns the node of a ticket. With mu held.
func (z *ensemble) ticketOf(name string, is func(id string, n *zkNode) bool) *zkNode {
	for path, n := range z.tree {
		if of, id := zkTicket(path); of == name && id != "" && is(id, n) {
			return n
		}
	}
	return nil
}

func hasToken(token uint64) func(string, *zkNode) bool {
	return func(_ string, n *zkNode) bool { return uint64(n.stat.Czxid) == token } //nolint:gosec // positive
}

func (z *ensemble) has(name string, token uint64) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.ticketOf(name, hasToken(token)) != nil
}

func (z *ensemble) until(name string, token uint64) (time.Time, bool) {
	z.mu.Lock()
	defer z.mu.Unlock()
	n := z.ticketOf(name, hasToken(token))
	return z.keeps(n), n != nil
}

func (z *ensemble) lease(name, id string, _ time.Time) (there bool, until time.Time) {
	z.mu.Lock()
	defer z.mu.Unlock()
	n := z.ticketOf(name, func(of string, _ *zkNode) bool { return of == id })
	return n != nil, z.keeps(n)
}

// keeps returns until when a node is sure to be there, if its client and its server die now. A client that was
// silent for longer than it may be is excepted: until its server has reported it. With mu held.
func (z *ensemble) keeps(n *zkNode) time.Time {
	z.elect()
	if n == nil || z.sessions[n.stat.EphemeralOwner] == nil {
		return time.Time{}
	}
	s := z.sessions[n.stat.EphemeralOwner]
	if time.Since(s.resumed) < z.timeout {
		return latest(s.until, s.heard.Add(z.timeout))
	}
	return s.until
}

func (z *ensemble) leftovers() (all []string) {
	z.mu.Lock()
	defer z.mu.Unlock()
	for path := range z.tree {
		if path != "/" && path != "/locker" && path != "/locker/%protocol" {
			all = append(all, path)
		}
	}
	if len(z.sessions) > 1 { // the checker's
		all = append(all, fmt.Sprint(len(z.sessions), " sessions"))
	}
	slices.Sort(all)
	return all
}

func (z *ensemble) removeOne(rnd *stream) (string, uint64) {
	z.mu.Lock()
	defer z.mu.Unlock()
	paths := slices.DeleteFunc(slices.Sorted(maps.Keys(z.tree)), func(path string) bool { _, id := zkTicket(path); return id == "" })
	if len(paths) == 0 {
		return "", 0
	}
	path := pick(rnd, paths...)
	name, _ := zkTicket(path)
	token := uint64(z.tree[path].stat.Czxid) //nolint:gosec // positive
	e := z.edit()
	e.remove(path, -1)
	z.commit(e, 0)
	return name, token
}

// elect notes that there was no leader for a while. With mu held.
func (z *ensemble) elect() {
	paused, down, full := z.s.state()
	until := latest(latest(paused, down), full)
	if until.Equal(z.leader) {
		return
	}
	z.leader = until
	z.zxid = (z.zxid>>32 + 1) << 32
	for _, s := range z.sessions {
		s.until = latest(s.until, until.Add(z.timeout))
	}
}

// leaderless reports whether there is no leader. With mu held.
func (z *ensemble) leaderless() bool {
	z.elect()
	return z.leader.After(time.Now())
}

// extend notes a heartbeat at the leader. With mu held.
func (z *ensemble) extend(s *zkSession) {
	s.until = latest(s.until, time.Now().Add(z.timeout))
	if !s.checks {
		s.checks = true
		z.s.w.at(z.ends(s), func() { z.expire(s) })
	}
}

// ends is when the leader ends a session of which it hears no more.
func (z *ensemble) ends(s *zkSession) time.Time { return s.until.Truncate(z.tick).Add(z.tick) }

// expire ends a session, if its time is over.
func (z *ensemble) expire(s *zkSession) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.elect()
	switch end := z.ends(s); {
	case z.sessions[s.id] != s:
	case end.After(time.Now()):
		z.s.w.at(end, func() { z.expire(s) })
	default:
		z.s.w.message("%s: the session %d of %s is over", z.s.name, s.id, s.owner.p.process)
		z.end(s)
	}
}

// end ends a session, and with it its nodes. With mu held.
func (z *ensemble) end(s *zkSession) {
	delete(z.sessions, s.id)
	e := z.edit()
	for _, path := range slices.Sorted(maps.Keys(z.tree)) {
		if z.tree[path].stat.EphemeralOwner == s.id {
			e.remove(path, -1)
		}
	}
	z.commit(e, s.id)
}

// commit does what an edit has changed, and has it come to the servers. With mu held.
func (z *ensemble) commit(e *zkEdit, ends int64) {
	for path, n := range e.nodes {
		if z.tree[path] = n; n == nil {
			delete(z.tree, path)
		}
	}
	z.log = append(z.log, zkTxn{e.zxid, time.Now(), ends, e.changes})
	for _, c := range e.changes {
		if name, id := zkTicket(c.path); c.event == zk.EventNodeCreated && id != "" {
			z.s.w.ticket(id)
			z.s.w.comesBack(z.s, []string{id}, func(of, _ string, _ time.Time) bool { return of == name })
		}
	}
	for _, m := range z.members {
		if len(m.links) > 0 {
			m.applyLater(len(z.log))
		}
	}
}

// zkEdit is a transaction that is done, or not.
type zkEdit struct {
	z       *ensemble
	zxid    int64
	nodes   map[string]*zkNode // nil: deleted
	changes []zkChange
}

// edit begins a transaction. With mu held.
func (z *ensemble) edit() *zkEdit {
	z.zxid++
	return &zkEdit{z: z, zxid: z.zxid, nodes: make(map[string]*zkNode)}
}

func (e *zkEdit) get(path string) *zkNode {
	if n, ok := e.nodes[path]; ok {
		return n
	}
	return e.z.tree[path]
}

func (e *zkEdit) put(path string, n *zkNode, event zk.EventType) {
	e.nodes[path], e.changes = n, append(e.changes, zkChange{path, n, event})
}

// child counts a child of a node that was created or deleted.
func (e *zkEdit) child(path string, creates, more int32) {
	n := *e.get(path)
	n.creates += creates
	n.stat.NumChildren += more
	n.stat.Cversion, n.stat.Pzxid = 2*n.creates-n.stat.NumChildren, e.zxid
	e.put(path, &n, 0)
}

// Codes of answers.
const (
	zkInconsistent = -2
	zkNoNode       = -101
	zkBadVersion   = -103
	zkNodeExists   = -110
	zkNotEmpty     = -111
	zkExpired      = -112
)

func (e *zkEdit) create(path string, data []byte, flags int32, session int64) (made string, code int32) {
	parent := e.get(parentOf(path))
	if parent == nil {
		return "", zkNoNode
	}
	if flags&zk.FlagSequence != 0 {
		path += fmt.Sprintf("%010d", parent.creates)
	}
	if e.get(path) != nil {
		return "", zkNodeExists
	}
	now := time.Now().UnixMilli()
	n := &zkNode{data: data, stat: zk.Stat{Czxid: e.zxid, Mzxid: e.zxid, Pzxid: e.zxid, Ctime: now, Mtime: now, DataLength: int32(len(data))}} //nolint:gosec // short
	if flags&zk.FlagEphemeral != 0 {
		n.stat.EphemeralOwner = session
	}
	e.put(path, n, zk.EventNodeCreated)
	e.child(parentOf(path), 1, 1)
	return path, 0
}

// check returns a node of that version.
func (e *zkEdit) check(path string, version int32) (n *zkNode, code int32) {
	switch n = e.get(path); {
	case n == nil:
		return nil, zkNoNode
	case version != -1 && version != n.stat.Version:
		return nil, zkBadVersion
	}
	return n, 0
}

func (e *zkEdit) remove(path string, version int32) (code int32) {
	n, code := e.check(path, version)
	switch {
	case code != 0:
		return code
	case n.stat.NumChildren > 0:
		return zkNotEmpty
	}
	e.put(path, nil, zk.EventNodeDeleted)
	e.child(parentOf(path), 0, -1)
	return 0
}

func (e *zkEdit) set(path string, data []byte, version int32) (stat zk.Stat, code int32) {
	n, code := e.check(path, version)
	if code != 0 {
		return stat, code
	}
	next := *n
	next.data, next.stat.DataLength = data, int32(len(data)) //nolint:gosec // short
	next.stat.Version, next.stat.Mzxid, next.stat.Mtime = n.stat.Version+1, e.zxid, time.Now().UnixMilli()
	e.put(path, &next, zk.EventNodeDataChanged)
	return next.stat, 0
}

// join makes the servers of a process.
func (z *ensemble) join(p *path) (servers []*zkMember) {
	rnd := newStream(z.s.w.seed, "members "+p.process)
	z.mu.Lock()
	defer z.mu.Unlock()
	for i := range 3 {
		m := &zkMember{z: z, p: p, index: i, tree: maps.Clone(z.tree), applied: len(z.log), touched: make(map[int64]bool)}
		if i > 0 {
			m.lag = rnd.between(100*time.Microsecond, 100*time.Millisecond)
		}
		servers = append(servers, m)
	}
	z.members = append(slices.DeleteFunc(z.members, func(m *zkMember) bool { return m.p.isDead() }), servers...)
	return servers
}

// isCutOff reports whether a server is cut off from the others. With mu held.
func (m *zkMember) isCutOff() bool { return m.cut.After(time.Now()) }

// refuses reports whether a server knows that it has no leader. With mu held.
func (m *zkMember) refuses() bool {
	return m.z.leaderless() || m.isCutOff() && !m.noticed.After(time.Now())
}

// isolate cuts a server off from the others. With mu held.
func (m *zkMember) isolate(until time.Time) {
	if !m.isCutOff() {
		m.noticed, m.deposed = time.Now().Add(m.z.rnd.between(time.Second, 10*m.z.tick)), m.z.rnd.one(2)
	}
	m.cut = latest(m.cut, until)
}

// last is the last transaction that a server has. With mu held.
func (m *zkMember) last() int64 {
	if m.applied == 0 {
		return 0
	}
	return m.z.log[m.applied-1].zxid
}

// applyLater has a server apply so many transactions, soon. With mu held.
func (m *zkMember) applyLater(n int) {
	w := m.z.s.w
	m.applies = w.unique(latest(latest(time.Now(), m.cut).Add(m.z.rnd.upTo(m.lag)), m.applies))
	time.AfterFunc(time.Until(m.applies), func() {
		m.z.mu.Lock()
		defer m.z.mu.Unlock()
		if m.isCutOff() {
			m.applyLater(n)
			return
		}
		m.apply(n)
	})
}

// follow has a server apply what it must have by now. With mu held.
func (m *zkMember) follow() {
	n := len(m.z.log)
	for n > m.applied && time.Since(m.z.log[n-1].at) < m.lag {
		n--
	}
	if !m.isCutOff() {
		m.apply(n)
	}
}

// apply has a server apply so many transactions of the log, and report what is watched. With mu held.
func (m *zkMember) apply(n int) {
	for ; m.applied < n; m.applied++ {
		t := &m.z.log[m.applied]
		for _, c := range t.changes {
			if m.tree[c.path] = c.node; c.node == nil {
				delete(m.tree, c.path)
			}
		}
		m.links = slices.DeleteFunc(m.links, func(l *zkLink) bool { return l.ended })
		for _, l := range m.links {
			for _, c := range t.changes {
				l.report(c)
			}
			if t.ends != 0 && l.session == t.ends {
				l.end()
			}
		}
	}
}

// touch notes a message of a session. With mu held.
func (m *zkMember) touch(s *zkSession) {
	now := time.Now()
	if now.Sub(s.heard) > m.z.timeout/3+20*time.Millisecond {
		s.resumed = now
	}
	s.heard = now
	if m.index == 0 && !m.isCutOff() {
		m.z.extend(s)
		return
	}
	m.touched[s.id] = true
	if !m.reports {
		m.reports = true
		half, phase := m.z.tick/2, time.Duration(m.index)*m.z.tick/7
		m.z.s.w.at(now.Add(-phase).Truncate(half).Add(half+phase), m.report)
	}
}

// report reports heartbeats to the leader.
func (m *zkMember) report() {
	m.z.mu.Lock()
	defer m.z.mu.Unlock()
	m.reports = false
	lost := m.z.leaderless() || m.isCutOff() || m.p.isDead() && m.z.rnd.one(2)
	for _, id := range slices.Sorted(maps.Keys(m.touched)) {
		if s := m.z.sessions[id]; s != nil && !lost {
			m.z.extend(s)
		}
	}
	clear(m.touched)
}
