package etcd_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker/internal/testbed"
)

// If a member has no leader, a client that knows only that member waits for one. A
// client that knows others is refused at once: they may have a leader.
func TestMemberWithoutLeader(t *testing.T) {
	testbed.Nightly(t, "run it after a change to which errors the store repeats, or to the leader that its requests require")
	t.Parallel()
	e := testbed.EtcdCluster(t)
	last := e.Followers()[0]
	others := slices.DeleteFunc(slices.Clone(e.Members), func(s *testbed.Server) bool { return s == last })
	client, several := newClient(t, last.Addr()), newClient(t, last.Addr())
	several.SetEndpoints(last.Addr(), last.Addr()) // as if there were others
	alone, oneOfMany := newDriver(t, client), newDriver(t, several)
	release(t, alone, acquire(t, alone, request("waits", "id-1", time.Minute)))
	release(t, oneOfMany, acquire(t, oneOfMany, request("refused", "id-2", time.Minute)))
	for _, s := range others {
		s.Kill()
	}
	waitFor(t, 10*time.Second, "loss of the leader", func() bool {
		_, err := client.Get(clientv3.WithRequireLeader(t.Context()), "x", clientv3.WithSerializable())
		return errors.Is(err, rpctypes.ErrNoLeader)
	})
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if _, err := oneOfMany.Acquire(ctx, request("refused", "id-3", time.Minute)); !errors.Is(err, rpctypes.ErrNoLeader) {
		t.Errorf("who knows several members got %v, want ErrNoLeader", err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := alone.Acquire(ctx, request("waits", "id-4", time.Minute))
		ended <- err
	}()
	for _, s := range others {
		s.Start()
	}
	if err := <-ended; err != nil {
		t.Errorf("who knows one member got %v, and there is a leader again", err)
	}
}
