package redis_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestSmoke(t *testing.T) {
	srv := testbed.SharedRedis(t)
	ctx := context.Background()
	var wg sync.WaitGroup
	var mu sync.Mutex
	n := 0
	start := time.Now()
	for i := range 8 {
		wg.Go(func() {
			l, err := locker.Open(ctx, srv.URL())
			if err != nil {
				t.Error(err)
				return
			}
			defer l.Close()
			for range 200 {
				k, err := l.Acquire(ctx, "a", locker.WithOwner(fmt.Sprint(i)), locker.WithTTL(5*time.Second))
				if err != nil {
					t.Error(err)
					return
				}
				if !mu.TryLock() {
					t.Error("overlap")
				}
				n++
				mu.Unlock()
				if err := k.Release(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	t.Log(n, time.Since(start), time.Since(start)/time.Duration(max(n, 1)))
}

func TestShared(t *testing.T) {
	srv := testbed.SharedRedis(t)
	ctx := context.Background()
	var ls []*locker.Client
	for range 4 {
		l, err := locker.Open(ctx, srv.URL())
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ls = append(ls, l)
	}
	show := func() {
		line, err := ls[0].Inspect(ctx, "sh")
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range line.Tickets {
			t.Logf("%+v", k)
		}
		names, _ := ls[0].List(ctx)
		t.Log("--", names)
	}
	a, err := ls[0].Acquire(ctx, "sh", locker.Limit(2), locker.WithNote("n ote"))
	if err != nil {
		t.Fatal(err)
	}
	b, err := ls[1].Acquire(ctx, "sh", locker.Limit(2))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ls[2].TryAcquire(ctx, "sh", locker.Limit(2)); err == nil {
		t.Fatal("third permit")
	}
	got := make(chan *locker.Lock)
	go func() {
		k, err := ls[2].Acquire(ctx, "sh")
		if err != nil {
			t.Error(err)
		}
		got <- k
	}()
	time.Sleep(100 * time.Millisecond)
	go func() {
		k, err := ls[3].Acquire(ctx, "sh", locker.Shared())
		if err != nil {
			t.Error(err)
		}
		got <- k
	}()
	time.Sleep(100 * time.Millisecond)
	show()
	t.Log(a.Release(ctx), b.Release(ctx))
	x := <-got
	show()
	t.Log(x.Release(ctx))
	y := <-got
	show()
	t.Log(ls[0].Break(ctx, "sh", y.Token()))
	<-y.Done()
	t.Log(y.Release(ctx))
	show()
}
