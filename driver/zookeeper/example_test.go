package zookeeper_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/zookeeper"
)

// New uses a connection that the program already has.
func Example() {
	conn, events, err := zk.Connect([]string{"zk1:2181", "zk2:2181", "zk3:2181"}, 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	d, err := zookeeper.New(conn, events)
	if err != nil {
		log.Fatal(err)
	}
	l := locker.New(d)
	defer l.Close()

	ctx := context.Background()
	lock, err := l.Acquire(ctx, "invoices/2024")
	if err != nil {
		log.Fatal(err)
	}
	defer lock.Release(ctx)
	fmt.Println("token", lock.Token())
}

// The driver reads the connection's events. A program that needs them too gets
// them from the driver.
func ExampleWithEvents() {
	conn, events, err := zk.Connect([]string{"zk1:2181"}, 10*time.Second)
	if err != nil {
		log.Fatal(err)
	}
	defer conn.Close()

	d, err := zookeeper.New(conn, events, zookeeper.WithEvents(func(ev zk.Event) {
		log.Println("zookeeper:", ev.State)
	}))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(locker.New(d).Close())
}
