package casqueue

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/conformance/link"
	"github.com/lockerproject/locker/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestConformance runs the suite without a server: waiting takes no time.
func TestConformance(t *testing.T) {
	store := newFake()
	store.most = 1 << 20 // room for a queue of more than a hundred tickets
	conformance.Run(t, conformance.Harness{
		Bubble: true,
		Open: func(context.Context) (driver.Driver, error) {
			return New(Options{Store: &process{fake: store}, Prefix: "c"}), nil
		},
		OpenLink: func(context.Context) (driver.Driver, conformance.Link, error) {
			i := link.NewInterceptor()
			return New(Options{Store: &cuttable{&process{fake: store}, i}, Prefix: "c"}), i, nil
		},
	})
}

// cuttable is a process whose connection can be cut. Its requests take two seconds at most.
type cuttable struct {
	*process
	i *link.Interceptor
}

func (c *cuttable) pass(ctx context.Context, f func(context.Context) error) error {
	bound, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var mu sync.Mutex
	err := c.i.Intercept(bound, func() error {
		mu.Lock()
		defer mu.Unlock()
		return f(ctx)
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = driver.Unavailable(errors.New("fake: no answer in time"))
	}
	return err
}

func (c *cuttable) Get(ctx context.Context, keys ...string) (docs []Document, err error) {
	err = c.pass(ctx, func(ctx context.Context) (err error) { docs, err = c.process.Get(ctx, keys...); return err })
	return docs, err
}

func (c *cuttable) Put(ctx context.Context, key string, value []byte, read Version, keep time.Duration) (v Version, err error) {
	err = c.pass(ctx, func(ctx context.Context) (err error) { v, err = c.process.Put(ctx, key, value, read, keep); return err })
	return v, err
}

func (c *cuttable) Time(ctx context.Context) (now Time, err error) {
	err = c.pass(ctx, func(ctx context.Context) (err error) { now, err = c.process.Time(ctx); return err })
	return now, err
}

func (c *cuttable) Set(ctx context.Context, key string, value []byte, keep time.Duration) error {
	return c.pass(ctx, func(ctx context.Context) error { return c.process.Set(ctx, key, value, keep) })
}
