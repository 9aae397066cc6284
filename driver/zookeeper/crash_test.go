package zookeeper_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	_ "github.com/lockerproject/locker/driver/zookeeper"
	"github.com/lockerproject/locker/internal/testbed"
)

func init() { testbed.RegisterChild("locks", childLocks) }

// childLocks is a process that acquires every name that it is sent.
func childLocks() {
	ctx := context.Background()
	c, err := locker.Open(ctx, os.Getenv("STORE"))
	if err != nil {
		fmt.Println("error", err)
		return
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		name := in.Text()
		go func() {
			k, err := c.Acquire(ctx, name)
			if err != nil {
				fmt.Println("error", err)
				return
			}
			fmt.Println("granted", name, k.Token())
		}()
	}
	select {}
}

// TestCrash kills a process that holds one lock and waits for another, ahead of
// others: both queues move on within the bound, past all its tickets at once.
func TestCrash(t *testing.T) {
	t.Parallel()
	url := storeURL(t)
	ctx := ctxFor(t, time.Minute)
	a, d := client(t, url), open(t, url)
	b := locker.New(d)
	t.Cleanup(func() { _ = b.Close() })
	waited := must[*locker.Lock](t)(a.Acquire(ctx, "waited"))
	child := testbed.Child(t, "locks", "STORE="+url)
	child.Send("held")
	child.WaitLine("granted held")
	child.Send("waited")
	child.Send("waited")
	child.Send("waited")
	queueOf(t, a, "waited", 4)

	type grant struct {
		name string
		k    *locker.Lock
		at   time.Time
	}
	grants := make(chan grant, 2)
	for _, name := range []string{"held", "waited"} {
		go func() {
			k, err := b.Acquire(ctx, name)
			if err != nil {
				t.Error(err)
			}
			grants <- grant{name, k, time.Now()}
		}()
	}
	queueOf(t, a, "held", 2)
	queueOf(t, a, "waited", 5)
	bound := driver.BoundsOf(d, locker.DefaultTTL).Crash
	child.Kill()
	died := time.Now()
	if err := waited.Release(ctx); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		g := <-grants
		if g.k == nil {
			continue
		}
		took := g.at.Sub(died)
		t.Logf("%s was granted %v after the crash", g.name, took.Round(time.Millisecond))
		if took > bound {
			t.Errorf("%s was granted %v after the crash, which is more than %v", g.name, took, bound)
		}
		if err := g.k.Release(ctx); err != nil {
			t.Error(err)
		}
	}
}
