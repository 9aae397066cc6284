package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/lockerproject/locker/driver"
)

// Causes of a loss. Both are driver.ErrLost.
var (
	errDeleted   = fmt.Errorf("%w: its key was deleted", driver.ErrLost)
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
		return err
	case isContextError(err):
		return d.unanswered(ctx)
	}
	return errors.Join(context.Cause(ctx), err)
}

// unanswered is the error of a request that ctx ended before the answer came.
func (d *Driver) unanswered(ctx context.Context) error {
	return errors.Join(context.Cause(ctx), d.silence())
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

// probeBound is for a request that is answered by the client itself.
const probeBound = 100 * time.Millisecond

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
		last = d.silence() // a watch does not tell that it is being made anew
	}
	return errors.Join(context.Cause(ctx), last)
}

// isContextError reports whether err says no more than that a context ended.
func isContextError(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	code := status.Code(err)
	return code == codes.Canceled || code == codes.DeadlineExceeded
}
