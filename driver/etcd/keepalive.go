package etcd

import (
	"context"
	"errors"
	"io"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// keepAlive is a stream for keep-alives. With a password the client logs in for each stream
// that it opens, so a stream is kept for later requests. It serves one at a time. If a
// request is not answered its stream is ended, so that no answer is taken for that of a later
// request. The client's own stream serves all requests, and never says why one is not
// answered.
type keepAlive struct {
	stream etcdserverpb.Lease_LeaseKeepAliveClient
	end    context.CancelFunc
}

// mostIdle is how many streams are kept: more requests at once are rare.
const mostIdle = 16

// KeepAlive implements kvqueue.Store.
func (s *store) KeepAlive(ctx context.Context, session string) error {
	if err := ctx.Err(); err != nil { // no stream is to blame
		return err
	}
	var resp *etcdserverpb.LeaseKeepAliveResponse
	err := s.insist(ctx, func(ctx context.Context) (err error) {
		select {
		case k := <-s.idle:
			if resp, err = s.ask(ctx, k, session); err == nil || ctx.Err() != nil {
				return err
			}
		default:
		}
		k, err := s.openKeepAlive(ctx)
		if err == nil {
			resp, err = s.ask(ctx, k, session)
		}
		return err
	})
	switch {
	case err != nil && ctx.Err() != nil && isContextError(err):
		return ctx.Err() // as the client says for its own requests: the engine tells that from an answer of gRPC's
	case err == nil && resp.TTL <= 0:
		err = rpctypes.ErrLeaseNotFound
	}
	return outcome(err)
}

// openKeepAlive opens a stream, which may outlive ctx.
func (s *store) openKeepAlive(ctx context.Context) (k keepAlive, err error) {
	life, end := context.WithCancel(s.life)
	defer context.AfterFunc(ctx, end)()
	k.end = end
	k.stream, err = etcdserverpb.NewLeaseClient(s.client.ActiveConnection()).LeaseKeepAlive(life)
	if err != nil {
		end()
	}
	return k, err
}

// ask sends a request on a stream, and keeps the stream if there is an answer. Otherwise no
// stream is kept.
func (s *store) ask(ctx context.Context, k keepAlive, session string) (resp *etcdserverpb.LeaseKeepAliveResponse, err error) {
	stop := context.AfterFunc(ctx, k.end)
	err = k.stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(leaseOf(session))})
	if err == nil || errors.Is(err, io.EOF) { // the stream has ended: Recv says why
		resp, err = k.stream.Recv()
	}
	if answered := stop() && err == nil; !answered {
		k.end()
		s.endIdle() // they may have ended long ago, or their member may hang
		return resp, err
	}
	select {
	case s.idle <- k:
	default:
		k.end()
	}
	return resp, nil
}

func (s *store) endIdle() {
	for {
		select {
		case k := <-s.idle:
			k.end()
		default:
			return
		}
	}
}
