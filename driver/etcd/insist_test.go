package etcd

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// A request is repeated for as long as insistBound. If there is no server by then, the error is the last answer.
func TestInsist(t *testing.T) {
	for after, want := range map[time.Duration]error{insistBound - time.Second: nil, time.Hour: rpctypes.ErrNoLeader} {
		synctest.Test(t, func(t *testing.T) {
			there := time.Now().Add(after)
			err := (&store{}).insist(t.Context(), func(ctx context.Context) error {
				if ctx.Err() != nil || !time.Now().Before(there) {
					return ctx.Err()
				}
				return rpctypes.ErrGRPCNoLeader
			})
			if !errors.Is(err, want) {
				t.Errorf("a server that is there after %v: %v, want %v", after, err, want)
			}
		})
	}
}
