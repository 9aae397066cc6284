package etcd

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// keepAlives are streams for keep-alives that no request uses at the moment. They are used
// again because with a password the client logs in for each stream that it opens. A stream
// serves one request at a time. One whose request was not answered is ended, so that no answer
// is taken for that of a later request. The client's own stream serves all requests, and
// never says why one is not answered.
type keepAlives struct {
	mu     sync.Mutex
	idle   []keepAlive // the latest last
	closed bool
}

type keepAlive struct {
	stream etcdserverpb.Lease_LeaseKeepAliveClient
	end    context.CancelFunc
}

// mostIdle is how many streams are kept: more requests at once are rare.
const mostIdle = 16

// KeepAlive implements kvqueue.Store.
func (s *store) KeepAlive(ctx context.Context, session string) (time.Duration, error) {
	s.several.Store(len(s.client.Endpoints()) > 1) // it may change
	var resp *etcdserverpb.LeaseKeepAliveResponse
	err := s.insist(ctx, func(ctx context.Context) (err error) {
		if k, ok := s.keepAlives.take(); ok {
			resp, err = s.keepAlives.ask(ctx, k, session)
			if err == nil || ctx.Err() != nil {
				return err
			}
			s.keepAlives.endIdle() // it may have ended long ago, and the others too
		}
		k, err := s.openKeepAlive(ctx)
		if err == nil {
			resp, err = s.keepAlives.ask(ctx, k, session)
		}
		return err
	})
	if err == nil && resp.TTL <= 0 {
		err = rpctypes.ErrLeaseNotFound
	}
	if err != nil {
		return 0, outcome(err)
	}
	return time.Duration(resp.TTL) * time.Second, nil
}

// openKeepAlive opens a stream, which may outlive the request that it is opened for.
func (s *store) openKeepAlive(ctx context.Context) (k keepAlive, err error) {
	life, end := context.WithCancel(clientv3.WithRequireLeader(context.Background()))
	stop := context.AfterFunc(ctx, end)
	defer stop()
	k.end = end
	k.stream, err = etcdserverpb.NewLeaseClient(s.client.ActiveConnection()).LeaseKeepAlive(life)
	if err != nil {
		end()
	}
	return k, err
}

// ask sends a request on a stream, and keeps the stream if there is an answer.
func (ks *keepAlives) ask(ctx context.Context, k keepAlive, session string) (*etcdserverpb.LeaseKeepAliveResponse, error) {
	stop := context.AfterFunc(ctx, k.end)
	err := k.stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(leaseOf(session))})
	var resp *etcdserverpb.LeaseKeepAliveResponse
	if err == nil || errors.Is(err, io.EOF) { // the stream has ended: Recv says why
		resp, err = k.stream.Recv()
	}
	if answered := stop(); !answered || err != nil || !ks.keep(k) {
		k.end()
	}
	return resp, err
}

func (ks *keepAlives) take() (k keepAlive, ok bool) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	n := len(ks.idle)
	if n == 0 {
		return k, false
	}
	k, ks.idle = ks.idle[n-1], ks.idle[:n-1]
	return k, true
}

// keep reports false if the stream is not needed.
func (ks *keepAlives) keep(k keepAlive) bool {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if ks.closed || len(ks.idle) == mostIdle {
		return false
	}
	ks.idle = append(ks.idle, k)
	return true
}

func (ks *keepAlives) endIdle() {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	for _, k := range ks.idle {
		k.end()
	}
	ks.idle = nil
}

// close ends the idle streams, and those that are in use when they are answered.
func (ks *keepAlives) close() {
	ks.mu.Lock()
	ks.closed = true
	ks.mu.Unlock()
	ks.endIdle()
}
