package zookeeper_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// harness starts a server, and has sessions of a length.
func harness(t *testing.T, session time.Duration) conformance.Harness {
	t.Helper()
	srv := testbed.Zookeeper(t, testbed.Faults(), testbed.Args("maxSessionTimeout=20000"))
	openAt := func(ctx context.Context, url string) (driver.Driver, error) {
		u, err := driver.ParseURL(url + "?prefix=conformance&session=" + session.String())
		if err != nil {
			return nil, err
		}
		return driver.Open(ctx, u)
	}
	return conformance.Harness{
		Open: func(ctx context.Context) (driver.Driver, error) { return openAt(ctx, srv.URL()) },
		OpenLink: func(ctx context.Context) (driver.Driver, conformance.Link, error) {
			p := srv.Proxy(t)
			d, err := openAt(ctx, p.URL())
			return d, p, err
		},
		Server:   srv,
		Complete: true,
		Keys: func(context.Context) (int, error) {
			conn := connect(t, srv.Addr()) // one that no outage has ended
			defer conn.Close()
			return count(conn, "/conformance")
		},
	}
}

// TestConformance runs with sessions whose leases are longer than the fixed ones of the
// suite. Where the suite breaks the server, locks outlast 7.4 s without it, since the
// suite keeps the store down for five seconds, while a Close gives up, and then until it
// has started.
func TestConformance(t *testing.T) {
	h := harness(t, 12*time.Second)
	h.NewServer = func(context.Context) (conformance.Harness, error) { return harness(t, 20*time.Second), nil }
	h.Parallel = true
	conformance.Run(t, h)
}

// count returns how many nodes there are below path.
func count(conn *zk.Conn, path string) (int, error) {
	names, _, err := conn.Children(path)
	if errors.Is(err, zk.ErrNoNode) {
		return 0, nil
	}
	n := 0
	for _, name := range names {
		if name == "%protocol" { // kept for ever
			continue
		}
		n++
		below, err := count(conn, path+"/"+name)
		if err != nil {
			return 0, err
		}
		n += below
	}
	return n, err
}
