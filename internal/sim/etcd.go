package sim

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"time"
	_ "unsafe" // for go:linkname

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/etcd"
)

// cluster is a model of etcd 3.6 by its gRPC API, which real servers and clients of gRPC
// carry over connections in memory. It has the store (etcdstore.go), leases and watches
// (etcdwatch.go). A request that has arrived is done whether or not anybody waits for the
// answer, unless the leader changes meanwhile: then it may be lost.
//
// Each process has one or two members to talk to. The first may be cut off from the others
// (the fault "stale"): it refuses, after a while, requests that ask for a leader, lets the
// others wait, and shows what it knew to watches and to reads that are not linearizable.
type cluster struct {
	etcdserverpb.UnimplementedKVServer
	etcdserverpb.UnimplementedLeaseServer
	etcdserverpb.UnimplementedWatchServer
	s        *server
	rnd      *stream
	grpc     *grpc.Server
	incoming chan net.Conn
	closed   chan struct{}
	stop     sync.Once

	mu      sync.Mutex
	data    *revisions
	leases  map[int64]*etcdLease
	made    int64         // leases
	changed chan struct{} // closed at each change
	alarmed time.Time     // the end of the time without space for which the alarm was raised
}

// valCtxCh is the channel, never closed, that the client's contexts of watches have for
// Done. It was made outside of the bubble, so a goroutine that waits for it holds up the
// bubble's time. Nil means the same, and nobody waits for it.
//
//go:linkname valCtxCh go.etcd.io/etcd/client/v3.valCtxCh
var valCtxCh chan struct{}

// probes lets clients probe idle connections as often as etcd does (embed.DefaultGRPCKeepAliveMinTime).
var probes = grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second})

func newCluster(s *server) *cluster {
	valCtxCh = nil
	c := &cluster{
		s: s, rnd: newStream(s.w.seed, s.name), grpc: grpc.NewServer(probes), incoming: make(chan net.Conn), closed: make(chan struct{}),
		data: newRevisions(), leases: make(map[int64]*etcdLease), changed: make(chan struct{}),
	}
	etcdserverpb.RegisterKVServer(c.grpc, c)
	etcdserverpb.RegisterLeaseServer(c.grpc, c)
	etcdserverpb.RegisterWatchServer(c.grpc, c)
	go func() { _ = c.grpc.Serve(c) }()
	return c
}

// Accept, Addr and Close implement net.Listener.
func (c *cluster) Accept() (net.Conn, error) {
	select {
	case conn := <-c.incoming:
		return conn, nil
	case <-c.closed:
		return nil, net.ErrClosed
	}
}

func (c *cluster) Addr() net.Addr { return &net.UnixAddr{Name: c.s.name, Net: "sim"} }

func (c *cluster) Close() error {
	c.stop.Do(func() { close(c.closed) })
	return nil
}

func (c *cluster) close() { c.grpc.Stop() }

// restart elects a new leader, when the server is back.
func (c *cluster) restart() bool {
	c.s.w.at(time.Now().Add(time.Nanosecond), func() {
		_, down, _ := c.s.state()
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, id := range slices.Sorted(maps.Keys(c.leases)) {
			c.arm(c.leases[id], down.Add(electionTimeout))
		}
		if c.rnd.one(2) {
			c.data.compacted = c.data.revision
		}
	})
	return false
}

func (c *cluster) has(name string, token uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, kv := range c.data.keys {
		if uint64(kv.CreateRevision) == token && isTicketOf(key, name) {
			return true
		}
	}
	return false
}

func isTicketOf(key, name string) bool { return strings.HasPrefix(key, "locker/"+name+"#") }

func (c *cluster) leftovers() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.data.keys {
		if key != "locker/#protocol" {
			all = append(all, key)
		}
	}
	for id := range c.leases {
		all = append(all, fmt.Sprintf("lease %x", id))
	}
	slices.Sort(all)
	return all
}

// etcdMember is a member as one process knows it. It is the address of that process's end
// of a connection.
type etcdMember struct {
	c     *cluster
	p     *path
	index int

	// cluster.mu guards these.
	cut     time.Time // until when it has no leader, as it was last seen
	noticed time.Time // when it notices that
	frozen  *revisions
	watches int // made so far
}

func (*etcdMember) Network() string  { return "sim" }
func (m *etcdMember) String() string { return m.p.process }

// etcdDriver is deeper in checkedEtcd than what checks its answers.
type etcdDriver struct{ *etcd.Driver }

// checkedEtcd closes the client, too.
type checkedEtcd struct {
	*contract
	etcdDriver
	client *clientv3.Client
}

func (d checkedEtcd) Close() error {
	err := d.contract.Close()
	_ = d.client.Close()
	return err
}

// openCluster opens a driver, with the settings of a URL.
func openCluster(s *server, process string) (driver.Driver, *path, error) {
	c, p := s.model.(*cluster), newPath(s, process)
	members := make(map[string]*etcdMember)
	for i := range 1 + newStream(s.w.seed, "members "+process).n(2) {
		members[fmt.Sprintf("m%d:2379", i)] = &etcdMember{c: c, p: p, index: i}
	}
	p.deposed = func() { // the first member knows what there is now
		c.mu.Lock()
		defer c.mu.Unlock()
		members["m0:2379"].view()
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: slices.Sorted(maps.Keys(members)), DialTimeout: 5 * time.Second, Logger: zap.NewNop(),
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
		DialOptions: []grpc.DialOption{
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
				MinConnectTimeout: 2 * time.Second,
			}),
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				return p.wireTo(ctx, members[address], c.accept)
			}),
		},
	})
	if err != nil {
		return nil, nil, err
	}
	d, err := etcd.New(client)
	return checkedEtcd{&contract{w: s.w, m: c, d: d, process: process, trusts: true}, etcdDriver{d}, client}, p, err
}

func (c *cluster) accept(conn net.Conn) bool {
	select {
	case c.incoming <- conn:
		return true
	case <-c.closed:
		return false
	}
}

// memberOf returns the member that serves a request, when that does, and an error if it is down.
func memberOf(ctx context.Context) (*etcdMember, error) {
	from, _ := peer.FromContext(ctx)
	m := from.Addr.(*etcdMember)
	if !m.p.await() {
		return nil, rpctypes.ErrGRPCStopped
	}
	return m, nil
}

// leaderless returns until when, in the server's fault "full", there is no leader, or when
// the last such fault has ended. Half of these faults are an election that takes long; in
// the others the quota is exceeded.
func (c *cluster) leaderless() time.Time {
	_, _, full := c.s.state()
	if c.isQuota(full) {
		return time.Time{}
	}
	return full
}

func (c *cluster) isQuota(full time.Time) bool {
	return newStream(c.s.w.seed, fmt.Sprint("full ", full.UnixNano())).one(2)
}

// noSpace reports whether the quota is exceeded. With mu held.
func (c *cluster) noSpace() bool {
	_, _, full := c.s.state()
	return full.After(time.Now()) && c.isQuota(full)
}

// silence returns until when a member does nothing, because it has no leader, stands still
// or is down.
func (m *etcdMember) silence() time.Time {
	paused, down, _ := m.c.s.state()
	return latest(latest(paused, down), m.cutOff())
}

// cutOff returns until when a member has no leader.
func (m *etcdMember) cutOff() time.Time {
	until := m.c.leaderless()
	m.p.mu.Lock()
	defer m.p.mu.Unlock()
	if m.index == 0 {
		until = latest(until, m.p.stale)
	}
	return until
}

// view returns what a member knows. With cluster.mu held.
func (m *etcdMember) view() *revisions {
	switch until := m.cutOff(); {
	case !until.After(time.Now()):
		m.frozen = nil
		return m.c.data
	case until != m.cut || m.frozen == nil:
		m.cut, m.noticed = until, time.Now().Add(time.Second+m.c.rnd.upTo(time.Second))
		now := m.c.data
		m.frozen = &revisions{now.revision, now.compacted, maps.Clone(now.keys), now.history[:len(now.history):len(now.history)]}
	}
	return m.frozen
}

// refuses returns an error for requests that ask for a leader, if the member has noticed
// that it has none.
func (m *etcdMember) refuses(ctx context.Context) error {
	m.c.mu.Lock()
	defer m.c.mu.Unlock()
	md, _ := metadata.FromIncomingContext(ctx)
	if m.view() != m.c.data && time.Now().After(m.noticed) && slices.Contains(md.Get(rpctypes.MetadataRequireLeaderKey), rpctypes.MetadataHasLeader) {
		return rpctypes.ErrGRPCNoLeader
	}
	return nil
}

// requestTimeout is etcd's: five seconds and two election timeouts.
const requestTimeout, electionTimeout = 7 * time.Second, time.Second

// propose has the cluster do a request. What is done in a change of leader may be lost.
func propose[T any](ctx context.Context, c *cluster, what string, do func(*stream) (T, error)) (answer T, err error) {
	m, err := memberOf(ctx)
	if err == nil {
		err = m.refuses(ctx)
	}
	if err != nil {
		return answer, err
	}
	type result struct {
		answer T
		err    error
	}
	done := make(chan result, 1)
	rnd, waited := m.p.stream(what), false
	one := m.p.passes(what, false)
	after := 100*time.Microsecond + rnd.upTo(2*time.Millisecond) + one.late("hold")
	if writes(what) && m.p.plays("lag", rnd) {
		after += m.p.lag(rnd)
	}
	go func() {
		m.p.sleepOrWritten(after, one, "hold")
		for m.silence().After(time.Now()) {
			waited = true
			c.s.w.sleep(time.Until(m.silence()) + rnd.upTo(20*time.Millisecond))
		}
		if waited && rnd.one(2) || writes(what) && m.p.has("lose") || one.is("drop") {
			c.s.w.message("%s: %s of %s is lost", c.s.name, what, m)
			return
		}
		c.mu.Lock()
		a, err := do(rnd)
		c.mu.Unlock()
		c.s.w.message("%s: %s of %s: %.300v %v", c.s.name, what, m, a, err)
		m.p.passes(what, true)
		m.p.sleepOrWritten(one.late("keep"), one, "keep")
		switch {
		case writes(what) && m.p.plays("mute", rnd), one.is("deaf"):
			return
		case !writes(what) && m.p.plays("blur", rnd):
			c.s.w.sleep(rnd.between(5*time.Millisecond, 3*time.Second))
		}
		done <- result{a, err}
	}()
	timeout := time.NewTimer(requestTimeout)
	defer timeout.Stop()
	select {
	case r := <-done:
		return r.answer, r.err
	case <-timeout.C:
		return answer, rpctypes.ErrGRPCTimeout
	case <-ctx.Done():
		return answer, status.FromContextError(ctx.Err()).Err()
	}
}

// Range implements etcdserverpb.KVServer.
func (c *cluster) Range(ctx context.Context, r *etcdserverpb.RangeRequest) (*etcdserverpb.RangeResponse, error) {
	if r.Serializable {
		m, err := memberOf(ctx)
		if err != nil {
			return nil, err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		return m.view().read(r), nil
	}
	return propose(ctx, c, fmt.Sprintf("range %.40q", r.Key), func(*stream) (*etcdserverpb.RangeResponse, error) { return c.data.read(r), nil })
}

// DeleteRange implements etcdserverpb.KVServer.
func (c *cluster) DeleteRange(ctx context.Context, r *etcdserverpb.DeleteRangeRequest) (*etcdserverpb.DeleteRangeResponse, error) {
	op := &etcdserverpb.RequestOp{Request: &etcdserverpb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}
	t, err := c.Txn(ctx, &etcdserverpb.TxnRequest{Success: []*etcdserverpb.RequestOp{op}})
	if err != nil {
		return nil, err
	}
	return t.Responses[0].GetResponseDeleteRange(), nil
}

// Txn implements etcdserverpb.KVServer. Something on the way may answer that its own time is
// over when the transaction is done: then the client sends it again. It does not happen to a
// release, which would be answered with ErrLost then: nobody can tell it from one that came too late.
func (c *cluster) Txn(ctx context.Context, r *etcdserverpb.TxnRequest) (*etcdserverpb.TxnResponse, error) {
	what, puts := "txn", slices.ContainsFunc(slices.Concat(r.Success, r.Failure), func(op *etcdserverpb.RequestOp) bool { return op.GetRequestPut() != nil })
	for _, op := range r.Success {
		what += " " + labelOf(op)
	}
	meant := c.meant(r)
	return propose(ctx, c, what, func(rnd *stream) (*etcdserverpb.TxnResponse, error) {
		full := puts && c.noSpace()
		if full && !c.raises() {
			return nil, rpctypes.ErrGRPCNoSpace
		}
		ops, succeeded := c.data.branch(r)
		before := c.data.revision
		c.removesOnly(meant, ops)
		out, err := c.data.do(ops, func(id int64) bool { return c.leases[id] != nil })
		c.change(before)
		c.comesBack(ops)
		switch {
		case err != nil:
			return nil, err
		case full:
			return nil, rpctypes.ErrGRPCNoSpace
		case puts && rnd.one(40):
			c.s.w.doubled(ctx)
			return nil, status.Error(pick(rnd, codes.Canceled, codes.DeadlineExceeded), "upstream request timeout")
		}
		return &etcdserverpb.TxnResponse{Header: c.data.header(), Succeeded: succeeded, Responses: out}, nil
	})
}

// meant returns the tickets that a transaction would delete now, when it is sent: their IDs, by key.
func (c *cluster) meant(r *etcdserverpb.TxnRequest) map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	meant := make(map[string]string)
	for _, op := range r.Success {
		if d := op.GetRequestDeleteRange(); d != nil {
			if kv := c.data.keys[string(d.Key)]; kv != nil {
				meant[string(d.Key)] = idOf(kv.Value)
			}
		}
	}
	return meant
}

// removesOnly checks that a transaction that is late deletes no other ticket than those which it was sent for. With mu held.
func (c *cluster) removesOnly(meant map[string]string, ops []*etcdserverpb.RequestOp) {
	for _, op := range ops {
		d := op.GetRequestDeleteRange()
		if d == nil {
			continue
		}
		kv, id := c.data.keys[string(d.Key)], meant[string(d.Key)]
		if kv != nil && id != "" && idOf(kv.Value) != id {
			c.s.w.fail("%s: a deletion that was sent for the ticket %s removes %s, whose key is the same", c.s.name, c.s.w.ticket(id), c.s.w.ticket(idOf(kv.Value)))
		}
	}
}

// comesBack checks that no ticket is put that has departed. With mu held.
func (c *cluster) comesBack(ops []*etcdserverpb.RequestOp) {
	for _, op := range ops {
		if p := op.GetRequestPut(); p != nil && len(p.Value) > 0 {
			c.s.w.comesBack(c.s, []string{idOf(p.Value)}, func(name, id string, _ time.Time) bool { return c.ticketOf(name, id) != nil })
		}
	}
}

// doubled notes that a process sends a request again that was done. A try that finds its own ticket
// then, and cannot tell it from another's, removes it and asks again: it has had a ticket meanwhile.
func (w *world) doubled(ctx context.Context) {
	if from, ok := peer.FromContext(ctx); ok {
		w.sendsTwice(from.Addr.(*etcdMember).p.process)
	}
}

// sendsTwice notes that the client of a process sends a request a second time.
func (w *world) sendsTwice(process string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.twice = append(w.twice, interval{from: time.Now(), process: process})
}

// sentTwice reports whether a request of a process was sent twice in that time.
func (w *world) sentTwice(process string, from, to time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.twice, func(i interval) bool {
		return i.process == process && !i.from.Before(from) && !i.from.After(to)
	})
}

// labelOf names an operation, without what is random in its key.
func labelOf(op *etcdserverpb.RequestOp) string {
	switch r := op.Request.(type) {
	case *etcdserverpb.RequestOp_RequestRange:
		return "get:" + string(r.RequestRange.Key)
	case *etcdserverpb.RequestOp_RequestPut:
		key, _, _ := strings.Cut(string(r.RequestPut.Key), "#tombstone")
		return "put:" + key
	case *etcdserverpb.RequestOp_RequestDeleteRange:
		return "delete:" + string(r.RequestDeleteRange.Key)
	}
	return ""
}

// raises reports whether a request raises the alarm. The one that does may be done, and answered
// with an error. With mu held.
func (c *cluster) raises() bool {
	_, _, full := c.s.state()
	if c.alarmed.Equal(full) {
		return false
	}
	c.alarmed = full
	return c.rnd.one(2)
}

// change notifies watches, if there is a new revision. With mu held.
func (c *cluster) change(before int64) {
	if c.data.revision == before {
		return
	}
	if c.rnd.one(100) {
		c.data.compacted = c.data.revision
	}
	close(c.changed)
	c.changed = make(chan struct{})
}
