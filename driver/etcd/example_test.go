package etcd_test

import (
	"context"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/etcd"
)

func ExampleNew() {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:         []string{"127.0.0.1:2379"},
		DialKeepAliveTime: 10 * time.Second, DialKeepAliveTimeout: 5 * time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	d, err := etcd.New(client, etcd.WithPrefix("locks/billing"))
	if err != nil {
		log.Fatal(err)
	}
	l := locker.New(d)
	defer l.Close() // closes d, but not the client

	err = locker.Do(context.Background(), l, "invoices", func(ctx context.Context) error {
		return nil // ctx ends if the lock is lost
	})
	if err != nil {
		log.Print(err)
	}
}

// If the lock is lost, etcd itself refuses the write, however late it comes.
func ExampleDriver_Guard() {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"127.0.0.1:2379"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	d, err := etcd.New(client)
	if err != nil {
		log.Fatal(err)
	}
	l := locker.New(d)
	defer l.Close()

	ctx := context.Background()
	lock, err := l.Acquire(ctx, "config")
	if err != nil {
		log.Print(err)
		return
	}
	defer lock.Release(ctx)

	resp, err := client.Txn(ctx).
		If(d.Guard(lock)).
		Then(clientv3.OpPut("config/active", "blue")).
		Commit()
	if err == nil && !resp.Succeeded {
		log.Print("the lock was lost: nothing was written")
	}
}
