package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker"
	lockerconsul "github.com/lockerproject/locker/driver/consul"
	"github.com/lockerproject/locker/internal/testbed"
)

var consulStore = store{name: "consul", title: "consul, one server, fsync on", subjects: func(tb *bed) []subject {
	addr := testbed.Consul(tb, testbed.Durable()).Addr()
	return []subject{
		{name: "raw acquire + release", uncontended: true, open: func(tb *bed, n *atomic.Int64) client {
			return newConsulRaw(tb, consulConn(tb, addr, n))
		}},
		{name: "locker", uncontended: true, contended: true, shared: true, held: true, waiting: true, open: func(tb *bed, n *atomic.Int64) client {
			d, err := lockerconsul.New(consulConn(tb, addr, n))
			tb.check(err)
			return ours{locker.New(d)}
		}},
		{name: "api.Lock", uncontended: true, contended: true, most: 16, open: func(tb *bed, n *atomic.Int64) client {
			raw := newConsulRaw(tb, consulConn(tb, addr, n))
			return &consulLock{raw}
		}},
	}
}}

func consulConn(tb *bed, addr string, n *atomic.Int64) *api.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost, transport.DisableCompression = 64, true
	c, err := api.NewClient(&api.Config{
		Address: addr, HttpClient: &http.Client{Transport: countedTransport{transport, n}},
	})
	tb.check(err)
	return c
}

type consulRaw struct {
	c       *api.Client
	session string
}

func newConsulRaw(tb *bed, c *api.Client) *consulRaw {
	id, _, err := c.Session().Create(&api.SessionEntry{TTL: "3600s", Behavior: api.SessionBehaviorDelete}, nil)
	tb.check(err)
	return &consulRaw{c, id}
}

func (r *consulRaw) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	p := &api.KVPair{Key: name, Session: r.session}
	ok, _, err := r.c.KV().Acquire(p, (&api.WriteOptions{}).WithContext(ctx))
	if err == nil && !ok {
		err = fmt.Errorf("%s is taken", name)
	}
	return func(ctx context.Context) error {
		_, _, err := r.c.KV().Release(p, (&api.WriteOptions{}).WithContext(ctx))
		return err
	}, err
}

func (r *consulRaw) close() { _, _ = r.c.Session().Destroy(r.session, nil) }

type consulLock struct{ *consulRaw }

func (r *consulLock) acquire(ctx context.Context, name string) (func(context.Context) error, error) {
	l, err := r.c.LockOpts(&api.LockOptions{Key: name, Session: r.session})
	if err != nil {
		return nil, err
	}
	held, err := l.Lock(ctx.Done())
	if err == nil && held == nil {
		err = errors.Join(errors.New("interrupted"), ctx.Err())
	}
	return func(context.Context) error { return l.Unlock() }, err
}
