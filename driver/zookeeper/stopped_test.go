package zookeeper_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testbed"
)

func init() { testbed.RegisterChild("holds", childHolds) }

// stopped is how long a process is stopped at least. Its session may end sooner, because
// its last heartbeat was some time before the stop.
const stopped = 3 * time.Second

// childHolds holds a fixed lease that is longer than its session's, and checks the time
// without a pause. After a stop it prints the lock's state.
func childHolds() {
	ctx := context.Background()
	c, err := locker.Open(ctx, os.Getenv("STORE"))
	if err != nil {
		fmt.Println("error", err)
		return
	}
	k, err := c.Acquire(ctx, "x", locker.WithTTL(time.Minute), locker.WithoutRenewal())
	if err != nil {
		fmt.Println("error", err)
		return
	}
	last := time.Now() // before the test can stop this process
	fmt.Println("holds", k.Token())
	for {
		now := time.Now()
		if now.Sub(last) > stopped-time.Second/2 {
			fmt.Println("woke", k.Err())
		}
		last = now
	}
}

// TestStoppedHolder stops a process that holds a fixed lease longer than its
// session's. When the process goes on, after the lock was granted to another one, its
// first call of Err says that the lock is lost.
func TestStoppedHolder(t *testing.T) {
	t.Parallel()
	url := storeURL(t)
	short := strings.Replace(url, "session="+session.String(), "session=2s", 1)
	ctx := ctxFor(t, time.Minute)
	for range 3 {
		child := testbed.Child(t, "holds", "STORE="+short)
		child.WaitLine("holds")
		child.Pause()
		at := time.Now()
		next := client(t, url)
		k := must[*locker.Lock](t)(next.Acquire(ctx, "x"))
		time.Sleep(time.Until(at.Add(stopped)))
		child.Resume()
		if line := child.WaitLine("woke"); !strings.Contains(line, locker.ErrLost.Error()) {
			t.Errorf("the lock is %d's, and the one before says %q", k.Token(), line)
		}
		child.Kill()
		if err := k.Release(ctx); err != nil {
			t.Fatal(err)
		}
	}
}
