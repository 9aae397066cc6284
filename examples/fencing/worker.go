package main

import (
	"context"
	"errors"
	"io"
	"net/rpc"
	"os"
	"time"

	"github.com/lockerproject/locker"
)

// workerEnv makes this program a worker of that name.
const workerEnv = "FENCING_WORKER"

// ttl is the lease of a worker.
const ttl = time.Second

// work takes the lock, reads the stock, and writes one item less. A worker is
// stopped between the two, and does not know: it could ask the lock before it
// writes, and be stopped a moment later.
func work(in io.Reader, out io.WriteCloser) error {
	ctx := context.Background()
	shop := rpc.NewClient(pipe{in, out})
	defer func() { _ = shop.Close() }()
	r := Request{Worker: os.Getenv(workerEnv), Name: "stock"}
	release, err := acquire(ctx, shop, &r)
	if err != nil {
		return err
	}
	defer release()

	var items int
	if err := shop.Call("Shop.Read", r, &items); err != nil {
		return err
	}
	r.Items = items - 1
	var refused string
	return shop.Call("Shop.Write", r, &refused)
}

// acquire takes the lock, and puts its token into r.
func acquire(ctx context.Context, shop *rpc.Client, r *Request) (release func(), err error) {
	url := os.Getenv("LOCKER_URL")
	if url == "" {
		return func() {}, shop.Call("Shop.Lock", *r, &r.Token)
	}
	l, err := locker.Open(ctx, url)
	if err != nil {
		return nil, err
	}
	lock, err := l.Acquire(ctx, r.Name, locker.WithTTL(ttl))
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	r.Token = lock.Token()
	return func() {
		_ = lock.Release(ctx) // A has lost it
		_ = l.Close()
	}, nil
}
