package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// etcdLease is a lease: server/lease of etcd. It ends by itself up to half a second late;
// until then keys can be attached to it, but it cannot be kept alive any more. A new leader
// begins all leases anew.
type etcdLease struct {
	id    int64
	ttl   time.Duration
	from  time.Time // since when its TTL runs; perhaps in the future
	timer *time.Timer
	begun int // how often its TTL was started
}

// arm starts a lease's TTL anew, or has started it in the past. With mu held.
func (c *cluster) arm(l *etcdLease, from time.Time) {
	if l.timer != nil {
		l.timer.Stop()
	}
	l.from = from
	l.begun++
	begun := l.begun
	end := c.s.w.unique(l.from.Add(l.ttl + c.rnd.upTo(500*time.Millisecond)))
	l.timer = time.AfterFunc(time.Until(end), func() { c.expire(l, begun) })
}

// expire ends a lease, if there is a leader that may.
func (c *cluster) expire(l *etcdLease, begun int) {
	paused, down, _ := c.s.state()
	elected := c.leaderless()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch until := latest(paused, down); {
	case c.leases[l.id] != l || l.begun != begun:
	case elected.After(l.from):
		c.arm(l, elected.Add(electionTimeout))
	case until.After(time.Now()):
		c.s.w.at(until.Add(c.rnd.upTo(time.Second)), func() { c.expire(l, begun) })
	default:
		c.s.w.message("%s: lease %x is over", c.s.name, l.id)
		c.revoke(l)
	}
}

// revoke ends a lease, and deletes its keys. With mu held.
func (c *cluster) revoke(l *etcdLease) {
	l.timer.Stop()
	delete(c.leases, l.id)
	before := c.data.revision
	c.data.removeOf(l.id)
	c.change(before)
}

// LeaseGrant implements etcdserverpb.LeaseServer. No lease is shorter than one and a half
// election timeouts, in whole seconds.
func (c *cluster) LeaseGrant(ctx context.Context, r *etcdserverpb.LeaseGrantRequest) (*etcdserverpb.LeaseGrantResponse, error) {
	return propose(ctx, c, fmt.Sprint("grant ", r.TTL), func(*stream) (*etcdserverpb.LeaseGrantResponse, error) {
		if c.noSpace() {
			return nil, rpctypes.ErrGRPCNoSpace
		}
		c.made++
		l := &etcdLease{id: 0x1000 + c.made, ttl: time.Duration(max(r.TTL, 2)) * time.Second}
		c.leases[l.id] = l
		c.arm(l, time.Now())
		return &etcdserverpb.LeaseGrantResponse{Header: c.data.header(), ID: l.id, TTL: int64(l.ttl / time.Second)}, nil
	})
}

// LeaseRevoke implements etcdserverpb.LeaseServer.
func (c *cluster) LeaseRevoke(ctx context.Context, r *etcdserverpb.LeaseRevokeRequest) (*etcdserverpb.LeaseRevokeResponse, error) {
	return propose(ctx, c, fmt.Sprintf("revoke %x", r.ID), func(*stream) (*etcdserverpb.LeaseRevokeResponse, error) {
		l := c.leases[r.ID]
		if l == nil {
			return nil, rpctypes.ErrGRPCLeaseNotFound
		}
		c.revoke(l)
		return &etcdserverpb.LeaseRevokeResponse{Header: c.data.header()}, nil
	})
}

// LeaseTimeToLive implements etcdserverpb.LeaseServer.
func (c *cluster) LeaseTimeToLive(ctx context.Context, r *etcdserverpb.LeaseTimeToLiveRequest) (*etcdserverpb.LeaseTimeToLiveResponse, error) {
	return propose(ctx, c, fmt.Sprintf("ttl %x", r.ID), func(*stream) (*etcdserverpb.LeaseTimeToLiveResponse, error) {
		out := &etcdserverpb.LeaseTimeToLiveResponse{Header: c.data.header(), ID: r.ID, TTL: -1}
		if l := c.leases[r.ID]; l != nil {
			out.TTL, out.GrantedTTL = int64(time.Until(l.from.Add(l.ttl))/time.Second), int64(l.ttl/time.Second)
			for _, kv := range c.data.find([]byte{0}, []byte{0}) {
				if r.Keys && kv.Lease == r.ID {
					out.Keys = append(out.Keys, kv.Key)
				}
			}
		}
		return out, nil
	})
}

// LeaseKeepAlive implements etcdserverpb.LeaseServer. A member that was deposed as the leader
// says so; another one waits for a leader.
func (c *cluster) LeaseKeepAlive(asked etcdserverpb.Lease_LeaseKeepAliveServer) error {
	for {
		r, err := asked.Recv()
		if err != nil {
			return err
		}
		m, err := memberOf(asked.Context())
		if err != nil {
			return err
		}
		if m.cutOff().After(time.Now()) && c.rnd.one(2) {
			return status.Error(codes.Unknown, "lease: not a primary lessor")
		}
		var ttl int64
		for ttl = -1; ttl < 0 && err == nil; { // one that is about to be revoked is waited for
			ttl, err = propose(asked.Context(), c, fmt.Sprintf("keep-alive %x", r.ID), func(*stream) (int64, error) { return c.renew(r.ID), nil })
			if ttl < 0 {
				time.Sleep(20 * time.Millisecond) // the server does not ask itself all the time
			}
		}
		if err == nil {
			err = asked.Send(&etcdserverpb.LeaseKeepAliveResponse{Header: &etcdserverpb.ResponseHeader{}, ID: r.ID, TTL: ttl})
		}
		if err != nil {
			return err
		}
	}
}

// renew starts a lease's TTL anew, and returns the TTL, 0 if there is no such lease, and -1
// if that is over, but not revoked yet. With mu held.
func (c *cluster) renew(id int64) int64 {
	l := c.leases[id]
	switch {
	case l == nil:
		return 0
	case time.Since(l.from) > l.ttl && !c.leaderless().After(l.from):
		return -1
	}
	c.arm(l, time.Now())
	return int64(l.ttl / time.Second)
}

// etcdWatch is a watch on a stream.
type etcdWatch struct {
	*etcdserverpb.WatchCreateRequest
	next int // the index of the event in the history that it gets next
}

// Watch implements etcdserverpb.WatchServer. Streams that ask for a leader end when there is
// none for three election timeouts, and any stream may end when its member is stopped.
func (c *cluster) Watch(stream etcdserverpb.Watch_WatchServer) error {
	m, err := memberOf(stream.Context())
	if err != nil {
		return err
	}
	requests := make(chan *etcdserverpb.WatchRequest)
	go func() {
		defer close(requests)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- r:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	watches, begun := make(map[int64]*etcdWatch), time.Now()
	for alone := 0; alone < 3; {
		if m.p.hasStalled(begun) {
			<-stream.Context().Done()
			return nil
		}
		c.mu.Lock()
		changed := c.changed
		c.mu.Unlock()
		if err := c.sendEvents(stream, m, watches); err != nil {
			return err
		}
		tick := time.NewTimer(time.Until(c.s.w.unique(time.Now().Add(electionTimeout))))
		select {
		case r, ok := <-requests:
			if !ok {
				return nil
			}
			err = c.control(stream, m, watches, r)
		case <-changed:
		case <-tick.C:
			if alone++; m.refuses(stream.Context()) == nil {
				alone = 0
			}
		}
		tick.Stop()
		if err != nil {
			return err
		}
	}
	return rpctypes.ErrGRPCNoLeader
}

// hasStalled reports whether nothing gets through any more on a stream: something on the way has
// forgotten it, and its connection still answers pings.
func (p *path) hasStalled(begun time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return begun.Before(p.stalled)
}

// control creates and cancels watches.
func (c *cluster) control(stream etcdserverpb.Watch_WatchServer, m *etcdMember, watches map[int64]*etcdWatch, r *etcdserverpb.WatchRequest) error {
	if !m.p.await() {
		return rpctypes.ErrGRPCStopped
	}
	if err := m.refuses(stream.Context()); err != nil {
		return err
	}
	c.mu.Lock()
	v := m.view()
	var out []*etcdserverpb.WatchResponse
	switch {
	case r.GetCreateRequest() != nil:
		w := &etcdWatch{WatchCreateRequest: r.GetCreateRequest(), next: len(v.history)}
		id := int64(m.watches)
		m.watches++
		out = append(out, &etcdserverpb.WatchResponse{Header: v.header(), WatchId: id, Created: true})
		switch {
		case w.StartRevision > 0 && w.StartRevision <= v.compacted:
			out = append(out, &etcdserverpb.WatchResponse{Header: v.header(), WatchId: id, Canceled: true, CompactRevision: v.compacted + 1})
		case w.StartRevision > 0:
			w.next = v.since(w.StartRevision)
			fallthrough
		default:
			watches[id] = w
		}
	case r.GetCancelRequest() != nil:
		id := r.GetCancelRequest().WatchId
		delete(watches, id)
		out = append(out, &etcdserverpb.WatchResponse{Header: v.header(), WatchId: id, Canceled: true})
	}
	c.mu.Unlock()
	for _, resp := range out {
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
	return nil
}

// sendEvents sends what a member knows and its watches have not got yet, the events of a
// revision together.
func (c *cluster) sendEvents(stream etcdserverpb.Watch_WatchServer, m *etcdMember, watches map[int64]*etcdWatch) error {
	var out []*etcdserverpb.WatchResponse
	c.mu.Lock()
	v := m.view()
	for _, id := range slices.Sorted(maps.Keys(watches)) {
		w, resp := watches[id], &etcdserverpb.WatchResponse{Header: v.header(), WatchId: id}
		for _, e := range v.history[min(w.next, len(v.history)):] {
			filtered := e.Type == mvccpb.PUT && slices.Contains(w.Filters, etcdserverpb.WatchCreateRequest_NOPUT)
			if !filtered && inRange(string(e.Kv.Key), w.Key, w.RangeEnd) && e.Kv.ModRevision >= w.StartRevision {
				resp.Events = append(resp.Events, e)
			}
		}
		w.next = max(w.next, len(v.history))
		if len(resp.Events) > 0 {
			out = append(out, resp)
		}
	}
	c.mu.Unlock()
	for _, resp := range out {
		if !m.p.await() || c.rnd.one(200) {
			return rpctypes.ErrGRPCStopped
		}
		c.s.w.message("%s: watch %d of %s: %v", c.s.name, resp.WatchId, m, resp.Events)
		if err := stream.Send(resp); err != nil {
			return err
		}
	}
	return nil
}
