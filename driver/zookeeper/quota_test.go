package zookeeper_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestQuota: the quota of the prefix is used up. The server's refusal is an answer, although
// the client does not know its code: the error says so at once, and that there is no ticket.
func TestQuota(t *testing.T) {
	t.Parallel()
	slot(t)
	srv := testbed.Zookeeper(t, testbed.Args("enforceQuota=true"))
	ctx := ctxFor(t, 30*time.Second)
	d, conn := open(t, srv.URL()), connect(t, srv.Addr())
	held := request("x", "held-1")
	g := must[driver.Grant](t)(d.Acquire(ctx, held))
	for _, node := range [][2]string{
		{"/zookeeper/quota/locker"},
		{"/zookeeper/quota/locker/zookeeper_limits", "count=-1,bytes=-1,byteHardLimit=-1,countHardLimit=4"},
		{"/zookeeper/quota/locker/zookeeper_stats", "count=4,bytes=0"},
	} {
		if _, err := conn.Create(node[0], []byte(node[1]), 0, zk.WorldACL(zk.PermAll)); err != nil {
			t.Fatal(err)
		}
	}
	var err error
	took := testbed.Elapsed(func() { _, err = d.Acquire(ctx, request("y", "refused-1")) })
	if !errors.Is(err, driver.ErrNoTicket) || errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "quota") {
		t.Errorf("beyond the quota: %v", err)
	}
	if took > time.Second {
		t.Errorf("refused after %v", took)
	}
	if err := d.Release(ctx, held.Hold(g.Token)); err != nil {
		t.Error(err)
	}
}
