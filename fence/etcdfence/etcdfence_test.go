package etcdfence_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/etcd"
	"github.com/lockerproject/locker/fence"
	"github.com/lockerproject/locker/fence/etcdfence"
	"github.com/lockerproject/locker/fence/internal/guardtest"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func unique() string { return fmt.Sprintf("test-%016x", rand.Uint64()) }

func dial(t *testing.T) *clientv3.Client {
	t.Helper()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{testbed.SharedEtcd(t).Addr()}})
	must(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// number is a resource: the text at one key.
type number struct {
	c   *clientv3.Client
	key string
}

func (n *number) Read(ctx context.Context, lock fence.Lock) (int, error) {
	resp, err := etcdfence.Do(ctx, n.c, lock, clientv3.OpGet(n.key))
	if err != nil {
		return 0, err
	}
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		return strconv.Atoi(string(kv.Value))
	}
	return 0, nil
}

func (n *number) Write(ctx context.Context, lock fence.Lock, v int) error {
	_, err := etcdfence.Do(ctx, n.c, lock, clientv3.OpPut(n.key, strconv.Itoa(v)))
	return err
}

func (n *number) Update(ctx context.Context, lock fence.Lock, modify func(int) int) error {
	return etcdfence.Update(ctx, n.c, lock, n.key, func(text string, ok bool) (string, error) {
		v, err := strconv.Atoi(text)
		if !ok {
			v, err = 0, nil
		}
		return strconv.Itoa(modify(v)), err
	})
}

func (n *number) Peek(ctx context.Context) (int, error) {
	resp, err := n.c.Get(ctx, n.key)
	if err != nil || len(resp.Kvs) == 0 {
		return 0, err
	}
	return strconv.Atoi(string(resp.Kvs[0].Value))
}

// The locks are of the same server, opened by URL.
func TestDo(t *testing.T) {
	l, err := locker.Open(t.Context(), testbed.SharedEtcd(t).URL()+"?prefix="+unique())
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	c := dial(t)
	guardtest.Run(t, l, func(*testing.T) guardtest.Resource { return &number{c, unique()} })
}

func TestUpdate(t *testing.T) {
	ctx, c, key, lock := t.Context(), dial(t), unique(), fence.Token(unique(), 7)
	n := &number{c, key}
	must(t, n.Update(ctx, lock, func(v int) int { return v + 1 })) // there was none
	lease, err := c.Grant(ctx, 600)
	must(t, err)
	_, err = c.Put(ctx, key, "2", clientv3.WithLease(lease.ID))
	must(t, err)
	must(t, n.Update(ctx, lock, func(v int) int { return v + 1 }))
	resp, err := c.Get(ctx, key)
	must(t, err)
	if kv := resp.Kvs[0]; string(kv.Value) != "3" || kv.Lease != int64(lease.ID) {
		t.Errorf("the key is %v, want 3 under the lease it had", kv)
	}
	boom := errors.New("boom")
	err = etcdfence.Update(ctx, c, lock, key, func(string, bool) (string, error) { return "4", boom })
	if v, _ := n.Peek(ctx); err != boom || v != 3 { //nolint:errorlint // the very error
		t.Errorf("a function that failed with %v wrote %d", err, v)
	}
	for what, err := range map[string]error{
		"no function": etcdfence.Update(ctx, c, lock, key, nil),
		"no client":   etcdfence.Update(ctx, nil, lock, key, func(string, bool) (string, error) { return "", nil }),
	} {
		if !errors.Is(err, locker.ErrInvalidOption) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := etcdfence.DoWhileHeld(ctx, c, nil, lock); !errors.Is(err, locker.ErrInvalidOption) {
		t.Errorf("no driver: %v", err)
	}
}

// The condition of the driver: a holder is refused as soon as it does not hold the
// lock, though nobody came after it.
func TestDoWhileHeld(t *testing.T) {
	ctx, c := t.Context(), dial(t)
	d, err := etcd.New(c, etcd.WithPrefix(unique()))
	must(t, err)
	l := locker.New(d)
	t.Cleanup(func() { must(t, l.Close()) })
	n := &number{c, unique()}
	write := func(k fence.Lock, v int) error {
		_, err := etcdfence.DoWhileHeld(ctx, c, d, k, clientv3.OpPut(n.key, strconv.Itoa(v)))
		return err
	}
	group, err := locker.AcquireAll(ctx, l, []string{"a", "b"})
	must(t, err)
	must(t, write(group, 5))
	late := group.Locks()[0]
	must(t, l.Break(ctx, "a", late.Token()))
	for _, k := range []fence.Lock{group, late} {
		if err := write(k, 6); !errors.Is(err, fence.ErrStale) || !errors.Is(err, locker.ErrLost) {
			t.Errorf("the error is %v", err)
		}
	}
	if v, err := n.Peek(ctx); v != 5 || err != nil {
		t.Errorf("the value is %d, %v", v, err)
	}
	_ = group.Release(ctx)
}
