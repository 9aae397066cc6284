package redlock_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	_ "github.com/lockerproject/locker/driver/redlock"
	"github.com/lockerproject/locker/internal/testbed"
)

// open opens a driver by URL.
func open(ctx context.Context, address, prefix string) (driver.Driver, error) {
	u, err := driver.ParseURL(address + "?prefix=" + url.QueryEscape(prefix))
	if err != nil {
		return nil, err
	}
	return driver.Open(ctx, u)
}

// countKeys counts the keys with a prefix on one node, without the fences and
// the protocol version.
func countKeys(ctx context.Context, c goredis.Cmdable, prefix string) (int, error) {
	n := 0
	it := c.Scan(ctx, 0, prefix+":*", 1000).Iterator()
	for it.Next(ctx) {
		if !strings.HasPrefix(it.Val(), prefix+":fences") && it.Val() != prefix+":protocol:redlock" {
			n++
		}
	}
	return n, it.Err()
}

// all is every node at once: the store as a whole.
type all []*testbed.Server

func (a all) each(f func(*testbed.Server)) {
	done := make(chan struct{})
	for _, s := range a {
		go func() {
			defer func() { done <- struct{}{} }()
			f(s)
		}()
	}
	for range a {
		<-done
	}
}

func (a all) Kill()   { a.each((*testbed.Server).Kill) }
func (a all) Start()  { a.each((*testbed.Server).Start) }
func (a all) Pause()  { a.each((*testbed.Server).Pause) }
func (a all) Resume() { a.each((*testbed.Server).Resume) }

func clients(t testing.TB, e *testbed.Ensemble) []*goredis.Client {
	var cs []*goredis.Client
	for _, addr := range e.Addrs() {
		c := goredis.NewClient(&goredis.Options{Addr: addr})
		t.Cleanup(func() { _ = c.Close() })
		cs = append(cs, c)
	}
	return cs
}

func harness(t *testing.T) conformance.Harness {
	t.Helper()
	nodes := testbed.RedisN(t, 5, testbed.Kept())
	cs := clients(t, nodes)
	const prefix = "conformance"
	return conformance.Harness{
		Open: func(ctx context.Context) (driver.Driver, error) { return open(ctx, nodes.URL(), prefix) },
		OpenLink: func(ctx context.Context) (driver.Driver, conformance.Link, error) {
			p := nodes.Proxies(t)
			d, err := open(ctx, p.URL(), prefix)
			return d, p, err
		},
		Server:   all(nodes.Members),
		Complete: true,
		Keys: func(ctx context.Context) (int, error) {
			sum := 0
			for _, c := range cs {
				n, err := countKeys(ctx, c, prefix)
				if err != nil {
					return 0, err
				}
				sum += n
			}
			return sum, nil
		},
	}
}

func TestConformance(t *testing.T) {
	h := harness(t)
	h.NewServer = func(context.Context) (conformance.Harness, error) { return harness(t), nil }
	h.Parallel = true
	conformance.Run(t, h)
}
