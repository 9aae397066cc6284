package etcd_test

import (
	"context"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker/driver/etcd"
	"github.com/lockerproject/locker/internal/testbed"
)

// The context of the client's Config, which may be meant for its connection alone, ends: the client is not closed, and works.
func TestContextOfConfig(t *testing.T) {
	srv := testbed.SharedEtcd(t)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{srv.Addr()}, Context: ctx, DialTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	prefix := etcd.WithPrefix(randomPrefix())
	d := newDriver(t, c, prefix)
	h := acquire(t, d, request("a", "id-h", time.Minute))
	time.Sleep(time.Second)
	if err := d.Renew(t.Context(), h, time.Minute); err != nil {
		t.Errorf("Renew: %v", err)
	}
	// a waiter behind it
	w := request("a", "id-w", time.Minute)
	got := make(chan error, 1)
	joined := make(chan struct{})
	w.Joined = func() { close(joined) }
	go func() { _, err := d.Acquire(t.Context(), w); got <- err }()
	select {
	case <-joined:
	case err := <-got:
		t.Fatalf("Acquire: %v", err)
	case <-time.After(5 * time.Second):
		t.Fatal("not queued")
	}
	release(t, d, h)
	select {
	case err := <-got:
		if err != nil {
			t.Errorf("Acquire: %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("not granted")
	}
}
