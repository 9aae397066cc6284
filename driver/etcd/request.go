package etcd

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"
)

// bounded is the context of a request that the driver makes on its own account:
// it ends with Close, and a member without a leader refuses it instead of
// letting it wait.
func (d *Driver) bounded(bound time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(clientv3.WithRequireLeader(d.ctx), bound)
}

// commit sends one transaction.
func (d *Driver) commit(ctx context.Context, cmps []clientv3.Cmp, ops []clientv3.Op) (*clientv3.TxnResponse, error) {
	return d.client.Txn(requireLeader(ctx)).If(cmps...).Then(ops...).Commit()
}

// survey notes how many members the client knows: that may change.
func (d *Driver) survey() { d.lanes.several.Store(len(d.client.Endpoints()) > 1) }

// leaderRequired is the metadata of clientv3.WithRequireLeader. Nobody writes to
// it: whoever reads the metadata of a context gets a copy.
var leaderRequired = metadata.Pairs(rpctypes.MetadataRequireLeaderKey, rpctypes.MetadataHasLeader)

// requireLeader is clientv3.WithRequireLeader, which makes the metadata anew for
// every request.
func requireLeader(ctx context.Context) context.Context {
	if _, other := metadata.FromOutgoingContext(ctx); other {
		return clientv3.WithRequireLeader(ctx)
	}
	return metadata.NewOutgoingContext(ctx, leaderRequired)
}

// lanes lend contexts to the requests of which an uncontended lock consists. To
// derive a context from the caller's starts what that has put off until
// somebody asks for its end (a timer, usually), tells the server a deadline,
// which starts another timer there, and costs as much again for itself; all that
// for an end that hardly ever comes while a request is under way. So a request
// goes under a context that is used again and again, and the caller's is
// watched only if the server takes long.
type lanes struct {
	base context.Context //nolint:containedctx // ends with the driver

	// Whether the client knows several members. Then one without a leader is to
	// refuse a request instead of letting it wait, for another may do better. A
	// client that knows only one has nobody else to ask: it waits for the election.
	// (And to require a leader is metadata, which costs a cycle about a percent.)
	several atomic.Bool

	mu      sync.Mutex
	free    []*lane
	busy    []*lane
	timer   *time.Timer
	ticking bool
	closed  bool
}

// lane is a context that one request has at a time. What follows ctx and cancel
// is guarded by lanes.mu.
type lane struct {
	ctx    context.Context //nolint:containedctx // see lanes
	cancel context.CancelFunc

	index   int             // in lanes.busy
	use     uint64          // counts the requests
	caller  context.Context //nolint:containedctx // of the request, whose end is its end
	grace   time.Duration   // for which the request outlives that
	slow    bool            // a tick has seen the request
	unwatch func() bool     // nil: caller is not watched
}

const (
	// A request that has taken from one tick to the next has its caller's context
	// watched.
	laneTick = 20 * time.Millisecond
	// mostFree is how many lanes are kept for later.
	mostFree = 64
)

// request is the context of one request: it ends with its lane, and has the
// values of the caller's.
type request struct {
	context.Context
	values context.Context //nolint:containedctx // see lanes
}

func (c request) Value(key any) any {
	if v := c.Context.Value(key); v != nil {
		return v // the lane's own end, for contexts below
	}
	return c.values.Value(key)
}

// begin returns the context for a request of ctx's, which ends when ctx has
// ended for grace, at the latest two ticks after that, or with the driver.
// Whoever asked calls done when the request is over.
func (s *lanes) begin(ctx context.Context, grace time.Duration) (context.Context, *lane) {
	s.mu.Lock()
	var l *lane
	if n := len(s.free); n > 0 {
		l = s.free[n-1]
		s.free[n-1] = nil
		s.free = s.free[:n-1]
	} else {
		l = &lane{}
		l.ctx, l.cancel = context.WithCancel(s.base)
	}
	l.use++
	l.caller, l.grace, l.index = ctx, grace, len(s.busy)
	s.busy = append(s.busy, l)
	if !s.ticking && !s.closed {
		s.ticking = true
		if s.timer == nil {
			s.timer = time.AfterFunc(laneTick, s.tick)
		} else {
			s.timer.Reset(laneTick)
		}
	}
	s.mu.Unlock()
	r := request{l.ctx, ctx}
	if s.several.Load() {
		return requireLeader(r), l
	}
	return r, l
}

// done gives a lane back. One that was cancelled is of no more use.
func (s *lanes) done(l *lane) {
	s.mu.Lock()
	unwatch := l.unwatch
	last := s.busy[len(s.busy)-1]
	s.busy[l.index] = last
	last.index = l.index
	s.busy[len(s.busy)-1] = nil
	s.busy = s.busy[:len(s.busy)-1]
	l.use++
	l.caller, l.slow, l.unwatch = nil, false, nil
	keep := l.ctx.Err() == nil && len(s.free) < mostFree
	if keep {
		s.free = append(s.free, l)
	}
	s.mu.Unlock()
	if unwatch != nil {
		unwatch()
	}
	if !keep {
		l.cancel()
	}
}

// tick begins to watch the callers of requests that take long. It calls what
// is not ours, a context, without the lock.
func (s *lanes) tick() {
	type late struct {
		l      *lane
		use    uint64
		caller context.Context //nolint:containedctx // to be watched
	}
	var some []late
	s.mu.Lock()
	for _, l := range s.busy {
		if l.slow && l.unwatch == nil {
			some = append(some, late{l, l.use, l.caller})
		}
		l.slow = true
	}
	s.ticking = len(s.busy) > 0 && !s.closed
	if s.ticking {
		s.timer.Reset(laneTick)
	}
	s.mu.Unlock()
	for _, w := range some {
		unwatch := context.AfterFunc(w.caller, func() { s.left(w.l, w.use) })
		s.mu.Lock()
		current := w.l.use == w.use
		if current {
			w.l.unwatch = unwatch
		}
		s.mu.Unlock()
		if !current {
			unwatch()
		}
	}
}

// left is called when the caller of a request has gone.
func (s *lanes) left(l *lane, use uint64) {
	s.mu.Lock()
	grace, current := l.grace, l.use == use
	s.mu.Unlock()
	switch {
	case !current:
	case grace > 0:
		time.AfterFunc(grace, func() { s.cut(l, use) })
	default:
		s.cut(l, use)
	}
}

// cut ends a request, if it is still under way.
func (s *lanes) cut(l *lane, use uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.use == use {
		l.cancel()
	}
}

// close stops the ticks. The contexts have ended with the driver's.
func (s *lanes) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
}
