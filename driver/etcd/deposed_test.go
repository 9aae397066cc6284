package etcd_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// deposed answers the first keep-alives as a leader does that cannot reach the others, or a member that does not vote.
type deposed struct {
	grpc.ClientStream
	err   error
	times *atomic.Int64
}

func (d deposed) RecvMsg(m any) error {
	if err := d.ClientStream.RecvMsg(m); err != nil || d.times.Add(-1) < 0 {
		return err
	}
	return d.err
}

// The client has to ask another member (EtcdServer.LeaseRenew says so), and nobody is refused for good.
func TestDeposedLeaderIsAskedAgain(t *testing.T) {
	t.Parallel()
	// The server has no code for lease.ErrNotPrimary.
	testAskedAgain(t, status.Error(codes.Unknown, "not a primary lessor"))
}

// A member that does not vote yet refuses keep-alives, too. The client itself asks another member only where the request is no stream.
func TestAnotherMemberIsAskedThanALearner(t *testing.T) {
	t.Parallel()
	testAskedAgain(t, rpctypes.ErrGRPCNotSupportedForLearner)
}

func testAskedAgain(t *testing.T, refusal error) {
	t.Helper()
	for times, unavailable := range map[int64]bool{2: false, 1 << 40: true} {
		var left atomic.Int64
		client := dialed(t, []string{testbed.SharedEtcd(t).Addr()}, streams(func(method string, s grpc.ClientStream) grpc.ClientStream {
			if strings.HasSuffix(method, "LeaseKeepAlive") {
				return deposed{s, refusal, &left}
			}
			return s
		}))
		d := newDriver(t, client, withPrefix(randomPrefix()))
		r := request("a", "1", 30*time.Second)
		h := acquire(t, d, r)
		left.Store(times)
		err := d.Renew(t.Context(), h, 40*time.Second)
		if unavailable != errors.Is(err, driver.ErrUnavailable) || !unavailable && err != nil {
			t.Errorf("a renewal of which %d answers are %v: %v; want ErrUnavailable: %v", times, refusal, err, unavailable)
		}
		left.Store(0)
		release(t, d, h)
	}
}

// The first request of a driver is for the version of the data.
func TestFirstRequestIsNotAnswered(t *testing.T) {
	t.Parallel()
	client := dialed(t, []string{testbed.SharedEtcd(t).Addr()}, unary(func(ctx context.Context, _ string, _, _ any, next func() error) error {
		if _, limited := ctx.Deadline(); !limited {
			return next()
		}
		<-ctx.Done()
		return status.FromContextError(ctx.Err()).Err()
	}))
	d := newDriver(t, client, withPrefix(randomPrefix()))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := d.Acquire(ctx, request("a", "1", time.Minute)); !errors.Is(err, driver.ErrUnavailable) || ctx.Err() != nil {
		t.Errorf("a server that does not answer: %v, want ErrUnavailable", err)
	}
}
