package etcdfence_test

import (
	"context"
	"log"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/etcd"
	"github.com/lockerproject/locker/fence/etcdfence"
)

// The lock is in the same etcd: no write of a holder that has lost it can be
// committed, however late it comes.
func ExampleDoWhileHeld() {
	ctx := context.Background()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"localhost:2379"}})
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

	err = locker.Do(ctx, l, "config", func(ctx context.Context) error {
		lock, _ := locker.FromContext(ctx)
		_, err := etcdfence.DoWhileHeld(ctx, client, d, lock, clientv3.OpPut("config", "on"))
		return err
	})
	if err != nil {
		log.Print(err)
	}
}
