package etcd

import (
	"context"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ping sends one keep-alive.
func (d *Driver) ping(ctx context.Context, id clientv3.LeaseID) (ttl int64, err error) {
	err = d.insist(ctx, func(ctx context.Context) (err error) {
		ttl, err = d.pingOnce(ctx, id)
		return err
	})
	if err == nil && ttl <= 0 {
		return 0, rpctypes.ErrLeaseNotFound
	}
	return ttl, err
}

func (d *Driver) pingOnce(ctx context.Context, id clientv3.LeaseID) (int64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := etcdserverpb.NewLeaseClient(d.client.ActiveConnection()).LeaseKeepAlive(ctx)
	if err != nil {
		return 0, err
	}
	if err := stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(id)}); err != nil {
		return 0, err
	}
	resp, err := stream.Recv()
	if err != nil {
		return 0, err
	}
	return resp.TTL, nil
}

// insist asks again, for a while, as long as there is no server, or no leader.
// The client's own way to do so is for leases either to try without a pause
// or to go on for longer than an acquisition may take, and loses the reason.
func (d *Driver) insist(ctx context.Context, ask func(context.Context) error) error {
	ctx = clientv3.WithRequireLeader(ctx)
	until := time.Now().Add(insistBound)
	for {
		err := ask(ctx)
		if err == nil || !mayPass(err) || time.Now().After(until) || !d.pause(ctx, retryPause) {
			return rpctypes.Error(err)
		}
	}
}

// mayPass reports whether an error is one of a server that is not there yet, or
// has no leader. Certificates do not mend themselves.
func mayPass(err error) bool {
	return status.Code(err) == codes.Unavailable && !strings.Contains(err.Error(), "tls: ")
}
