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
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/lockerproject/locker/driver"
)

// Causes of a loss. Both are driver.ErrLost.
var (
	errDeleted   = fmt.Errorf("%w: the ticket was removed from the queue", driver.ErrLost)
	errLeaseOver = fmt.Errorf("%w: its lease in the store is over", driver.ErrLost)
)

// errUnsettled is the renewal of a ticket that is being released: the store has
// not said that it is gone.
var errUnsettled = errors.New("etcd: the release of this ticket has not been answered yet")

// explain is the error of a request: when it was ctx that ended it, with the
// cause of that, and what can be said of the store.
func (d *Driver) explain(ctx context.Context, err error) error {
	switch {
	case d.ctx.Err() != nil:
		return driver.ErrClosed
	case ctx.Err() == nil:
		return d.marked(err)
	case isContextError(err):
		return d.unanswered(ctx)
	}
	return errors.Join(context.Cause(ctx), d.marked(err))
}

// marked marks an error that means that the store did not answer or refuses
// everybody, and then hurries the next connection.
func (d *Driver) marked(err error) error {
	if !isUnavailable(err) {
		return err
	}
	d.reconnect()
	return driver.Unavailable(err)
}

// isUnavailable reports whether an error is one of a server that is not there, has
// no leader or no quorum, is overloaded, full or damaged. A failed TLS handshake is
// none: it is a matter between the server and this client.
func isUnavailable(err error) bool {
	switch {
	case mayPass(err), codeOf(err) == codes.DataLoss:
		return true
	}
	for _, sentinel := range []error{
		rpctypes.ErrTooManyRequests, rpctypes.ErrNoSpace, rpctypes.ErrNotLeader, clientv3.ErrNoAvailableEndpoints,
		driver.ErrUnavailable,
	} {
		if errors.Is(err, sentinel) {
			return true
		}
	}
	return false
}

// codeOf is the code of an error of gRPC, or of the client's own type.
func codeOf(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code()
	}
	return status.Code(err)
}

// reconnectPause is the least time between two connections that are made without
// regard to the pauses of gRPC.
const reconnectPause = 250 * time.Millisecond

// reconnect has the client connect at once if it has no connection. After an
// outage gRPC would pause for up to two minutes before it tries again.
func (d *Driver) reconnect() {
	conn := d.client.ActiveConnection()
	if conn.GetState() == connectivity.Ready {
		return
	}
	last, now := d.reconnects.Load(), time.Now().UnixNano()
	if now-last >= int64(reconnectPause) && d.reconnects.CompareAndSwap(last, now) {
		conn.ResetConnectBackoff()
	}
}

// unanswered is the error of a request that ctx ended before the answer came.
func (d *Driver) unanswered(ctx context.Context) error {
	d.reconnect()
	return errors.Join(context.Cause(ctx), driver.Unavailable(d.silence()))
}

// silence describes a store that does not answer: by the reason why there is
// no connection, if there is none.
func (d *Driver) silence() error {
	conn := d.client.ActiveConnection()
	if conn.GetState() != connectivity.Ready {
		ctx, cancel := d.bounded(probeBound)
		defer cancel()
		_, err := etcdserverpb.NewKVClient(conn).Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(d.prefix)})
		if status.Code(err) == codes.Unavailable {
			return err
		}
	}
	return fmt.Errorf("%s has not answered (connection: %s)", d, strings.ToLower(conn.GetState().String()))
}

// probeBound is for a request that is answered by the client itself. It is part of
// the time within which a method returns after the end of its context.
const probeBound = 15 * time.Millisecond

// stopped is the error of a wait that ctx ended, with the store's last error.
func (d *Driver) stopped(ctx context.Context) error {
	if d.ctx.Err() != nil {
		return driver.ErrClosed
	}
	d.mu.Lock()
	last := d.storeErr
	d.mu.Unlock()
	state := d.client.ActiveConnection().GetState()
	if last != nil && isContextError(last) ||
		last == nil && (state == connectivity.Connecting || state == connectivity.TransientFailure) {
		last = driver.Unavailable(d.silence()) // a watch does not tell that it is being made anew
	}
	return errors.Join(context.Cause(ctx), d.marked(last))
}

// isContextError reports whether err says no more than that a context ended.
func isContextError(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	code := status.Code(err)
	return code == codes.Canceled || code == codes.DeadlineExceeded
}
