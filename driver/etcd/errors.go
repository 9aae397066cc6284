package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/kvqueue"
)

// Times of requests.
const (
	answerBound    = 2 * time.Second        // a request that another member may answer if this one hangs
	insistBound    = 4 * time.Second        // for how long a request is repeated if there is no server
	retryPause     = 50 * time.Millisecond  // the pause before that is done
	probeBound     = 15 * time.Millisecond  // a request that the client itself answers
	reconnectPause = 250 * time.Millisecond // the least time between two attempts to connect at once
)

// errNoAnswer says that one member has not answered. Another one may.
var errNoAnswer = status.Error(codes.Unavailable, "etcd: the member has not answered")

// refuseIfLeaderless returns the context of a request that the caller of an acquisition or
// a release waits for. If the client knows several members, a member without a leader must
// refuse the request, since another one may have a leader. A client that knows only one
// member waits for the election.
func (s *store) refuseIfLeaderless(ctx context.Context) context.Context {
	if len(s.client.Endpoints()) > 1 {
		return clientv3.WithRequireLeader(ctx)
	}
	return ctx
}

// commit sends one transaction.
func (s *store) commit(ctx context.Context, cmps []clientv3.Cmp, ops ...clientv3.Op) (*clientv3.TxnResponse, error) {
	return s.client.Txn(clientv3.WithRequireLeader(ctx)).If(cmps...).Then(ops...).Commit()
}

// repeated is the key of the *atomic.Bool, in a request's context, that noteRepeated sets.
type repeated struct{}

// mayRepeat returns the context of a request that puts or removes a ticket. The client sends it
// again if a proxy, or a server, answers that its own time is over. Then before is set: the first
// sending may have been executed, or still may. So if the ticket is not there any more, that does
// not mean that it was lost.
func mayRepeat(ctx context.Context) (_ context.Context, before *atomic.Bool) {
	before = new(atomic.Bool)
	return context.WithValue(ctx, repeated{}, before), before
}

// noteRepeated is the interceptor of clients that are opened by URL.
func noteRepeated(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, send grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := send(ctx, method, req, reply, conn, opts...)
	if before, ok := ctx.Value(repeated{}).(*atomic.Bool); ok && err != nil && isContextError(err) {
		before.Store(true)
	}
	return err
}

// insist repeats a request, for a while, as long as there is no server, no leader, or no
// answer from the member that was asked. The client itself repeats requests about leases
// either without a pause or for longer than an acquisition may take, and does not say
// why they failed.
func (s *store) insist(ctx context.Context, ask func(context.Context) error) error {
	ctx = clientv3.WithRequireLeader(ctx)
	until, bound := time.Now().Add(insistBound), answerBound
	for {
		try, cancel := context.WithTimeout(ctx, bound)
		err := ask(try)
		if err != nil && ctx.Err() == nil && try.Err() != nil {
			err = errNoAnswer
		}
		cancel()
		if err == nil || !isTransient(err) || time.Now().After(until) {
			return rpctypes.Error(err)
		}
		bound = min(2*bound, insistBound) // it may be slow
		select {
		case <-time.After(retryPause):
		case <-ctx.Done():
			return rpctypes.Error(err)
		}
	}
}

// outcome marks, for the engine, an error that says that a request was not done. ErrNoSpace
// does not: a server whose quota ends with a request does the request and answers that.
func outcome(err error) error {
	switch {
	case errors.Is(err, rpctypes.ErrLeaseNotFound):
		return kvqueue.ErrSessionOver
	case errors.Is(err, rpctypes.ErrPermissionDenied), errors.Is(err, rpctypes.ErrUserEmpty),
		errors.Is(err, rpctypes.ErrInvalidAuthToken), errors.Is(err, rpctypes.ErrAuthOldRevision),
		errors.Is(err, rpctypes.ErrTooManyRequests):
		return kvqueue.Refused(err)
	}
	return err
}

// Temporary implements kvqueue.Store: the server has too many requests.
func (s *store) Temporary(err error) bool { return errors.Is(err, rpctypes.ErrTooManyRequests) }

// Explain implements kvqueue.Store.
func (s *store) Explain(err error) error {
	unavailable := isUnavailable(err)
	if isContextError(err) {
		err, unavailable = s.silence(), true
	}
	if !unavailable {
		return err
	}
	s.reconnect()
	return driver.Unavailable(err)
}

// isUnavailable reports whether an error says that the server is not there, has no
// leader or no quorum, is overloaded, full or damaged. A failed TLS handshake does not
// count: it concerns only this client.
func isUnavailable(err error) bool {
	if isTransient(err) || codeOf(err) == codes.DataLoss {
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

// What one member answers about leases, and another may not, with codes that say nothing: a leader that cannot reach the
// other members (lease.ErrNotPrimary), and a member that does not vote yet (rpctypes.ErrGRPCNotSupportedForLearner).
const (
	notPrimary = "not a primary lessor"
	isLearner  = "rpc not supported for learner"
)

// isTransient reports whether an error says that the server is not there yet, has no leader, or that
// another member has to be asked. An error of TLS does not count, since it does not pass by itself.
func isTransient(err error) bool {
	switch codeOf(err) {
	case codes.Unknown:
		return strings.Contains(err.Error(), notPrimary)
	case codes.FailedPrecondition:
		return strings.Contains(err.Error(), isLearner)
	case codes.Unavailable:
		return !strings.Contains(err.Error(), "tls: ")
	}
	return false
}

// codeOf returns the code of an error of gRPC, or of the client's own type.
func codeOf(err error) codes.Code {
	var e rpctypes.EtcdError
	if errors.As(err, &e) {
		return e.Code()
	}
	return status.Code(err)
}

// isContextError reports whether err says no more than that a context has ended.
func isContextError(err error) bool {
	code := status.Code(err)
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) ||
		code == codes.Canceled || code == codes.DeadlineExceeded
}

// reconnect makes the client connect at once if it has no connection. After an outage
// gRPC would pause for up to two minutes before it tries again.
func (s *store) reconnect() {
	conn := s.client.ActiveConnection()
	if conn.GetState() == connectivity.Ready {
		return
	}
	last, now := s.reconnects.Load(), time.Now().UnixNano()
	if now-last >= int64(reconnectPause) && s.reconnects.CompareAndSwap(last, now) {
		conn.ResetConnectBackoff()
	}
}

// silence returns the error for a store that does not answer. If there is no connection,
// it is the reason for that.
func (s *store) silence() error {
	conn := s.client.ActiveConnection()
	if conn.GetState() != connectivity.Ready {
		ctx, cancel := context.WithTimeout(context.Background(), probeBound)
		defer cancel()
		_, err := etcdserverpb.NewKVClient(conn).Range(ctx, &etcdserverpb.RangeRequest{Key: []byte(s.prefix)})
		if status.Code(err) == codes.Unavailable {
			return err
		}
	}
	return fmt.Errorf("%s has not answered (connection: %s)", s, strings.ToLower(conn.GetState().String()))
}

// String names the store, without credentials.
func (s *store) String() string {
	hosts := s.client.Endpoints()
	for i, h := range hosts {
		if _, after, ok := strings.Cut(h, "://"); ok {
			hosts[i] = after
		}
	}
	return "etcd " + strings.Join(hosts, ",")
}
