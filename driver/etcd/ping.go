package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockerproject/locker/driver"
)

// ping sends one keep-alive.
func (d *Driver) ping(ctx context.Context, id clientv3.LeaseID) (ttl int64, err error) {
	bound := tryBound
	err = d.insist(ctx, func(ctx context.Context) (err error) {
		try, cancel := context.WithTimeout(ctx, bound)
		defer cancel()
		bound *= 2 // it may be slow
		ttl, err = d.pingOnce(try, id)
		if err != nil && ctx.Err() == nil && try.Err() != nil {
			err = errNoAnswer // from this member
		}
		return err
	})
	if err == nil && ttl <= 0 {
		return 0, rpctypes.ErrLeaseNotFound
	}
	return ttl, err
}

func (d *Driver) pingOnce(ctx context.Context, id clientv3.LeaseID) (int64, error) {
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

// errNoAnswer says that one member has not answered; another one may.
var errNoAnswer = status.Error(codes.Unavailable, "etcd: the member has not answered")

// mayPass reports whether an error is one of a server that is not there yet, or
// has no leader. Certificates do not mend themselves.
func mayPass(err error) bool {
	return codeOf(err) == codes.Unavailable && !strings.Contains(err.Error(), "tls: ")
}

// Ping implements driver.Pinger. It reads, and sends a transaction that never does
// anything, but is refused to those who may not write the keys of tickets.
func (d *Driver) Ping(ctx context.Context) error {
	if d.ctx.Err() != nil {
		return driver.ErrClosed
	}
	if err := d.agree(ctx, false); err != nil {
		return d.lacks("read", err)
	}
	key := d.prefix + "/#ping" // no ticket's
	if _, err := d.client.Get(d.asking(ctx), key); err != nil {
		return d.lacks("read", d.explain(ctx, err))
	}
	never := clientv3.Compare(clientv3.CreateRevision(key), "<", 0)
	if _, err := d.commit(ctx, []clientv3.Cmp{never}, []clientv3.Op{clientv3.OpPut(key, "")}); err != nil {
		return d.lacks("write", d.explain(ctx, err))
	}
	return nil
}

// lacks says which right the user does not have, if it is for want of one.
func (d *Driver) lacks(right string, err error) error {
	if errors.Is(err, rpctypes.ErrPermissionDenied) {
		return fmt.Errorf("the user may not %s below %s/: %w", right, d.prefix, err)
	}
	return err
}
