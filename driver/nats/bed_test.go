package nats_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/nats"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

// open opens a driver by URL.
func open(ctx context.Context, url string) (driver.Driver, error) {
	u, err := driver.ParseURL(url)
	if err != nil {
		return nil, err
	}
	return driver.Open(ctx, u)
}

// opened is open for a test, until its end.
func opened(t *testing.T, url string) *nats.Driver {
	t.Helper()
	d, err := open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d.(*nats.Driver)
}

// process opens a Locker as a process of its own would.
func process(t *testing.T, url string, opts ...locker.ClientOption) *locker.Client {
	t.Helper()
	l, err := locker.Open(t.Context(), url, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// take acquires a lock that is free, or soon will be.
func take(t *testing.T, l *locker.Client, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	k, err := l.Acquire(t.Context(), name, append(opts, locker.WithWait(20*time.Second))...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// queuing opens a Locker that reports each Acquire that waits. The store knows of a waiter before the waiter knows that
// it is queued: if the server is killed between, Acquire fails.
func queuing(t *testing.T, url string) (*locker.Client, <-chan struct{}) {
	t.Helper()
	queued := make(chan struct{}, 1)
	return process(t, url, locker.WithObserver(func(_ context.Context, ev locker.Event) {
		if ev.Kind == locker.EventWaiting {
			queued <- struct{}{}
		}
	})), queued
}

// connect makes a connection for the test itself.
func connect(tb testing.TB, addr string, opts ...natsgo.Option) *natsgo.Conn {
	tb.Helper()
	nc, err := natsgo.Connect("nats://"+addr, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(nc.Close)
	return nc
}

// stream describes a bucket; nil: there is none.
func stream(ctx context.Context, addr, bucket string, opts ...jetstream.StreamInfoOpt) (*jetstream.StreamInfo, error) {
	nc, err := natsgo.Connect("nats://"+addr, natsgo.NoReconnect())
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return nil, err
	}
	s, err := js.Stream(ctx, "KV_"+bucket)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return s.Info(ctx, opts...)
}

// countKeys counts the entries of a prefix in the bucket.
func countKeys(ctx context.Context, addr, prefix string) (int, error) {
	info, err := stream(ctx, addr, nats.DefaultBucket, jetstream.WithSubjectFilter("$KV."+nats.DefaultBucket+"."+prefix+".>"))
	if info == nil || err != nil {
		return 0, err
	}
	return len(info.State.Subjects), nil
}

// leader returns the server that leads a bucket.
func leader(t *testing.T, e *testbed.Ensemble) *testbed.Server {
	t.Helper()
	for begun := time.Now(); time.Since(begun) < time.Minute; time.Sleep(20 * time.Millisecond) {
		for _, m := range e.Members {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			info, err := stream(ctx, m.Addr(), nats.DefaultBucket)
			cancel()
			if err != nil || info == nil || info.Cluster == nil {
				continue
			}
			for _, s := range e.Members {
				if info.Cluster.Leader == testbed.NatsName(s.Addr()) {
					return s
				}
			}
		}
	}
	t.Fatal("nobody leads the bucket")
	return nil
}

// counted makes a driver on a connection that counts the requests.
func counted(tb testing.TB, addr string, n *atomic.Int64, opts ...nats.Option) driver.Driver {
	tb.Helper()
	d, err := nats.New(connect(tb, addr, natsgo.SetCustomDialer(counting{n})), opts...)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

type counting struct{ n *atomic.Int64 }

// Dial makes a connection that counts the requests.
func (c counting) Dial(network, addr string) (net.Conn, error) {
	nc, err := net.Dial(network, addr)
	return &countingConn{nc, c.n}, err
}

type countingConn struct {
	net.Conn
	n *atomic.Int64
}

func (c *countingConn) Write(p []byte) (int, error) {
	for line := range bytes.Lines(p) {
		if bytes.HasPrefix(line, []byte("PUB ")) || bytes.HasPrefix(line, []byte("HPUB ")) {
			c.n.Add(1)
		}
	}
	return c.Conn.Write(p)
}

// with puts a user before the address of a URL, and parameters after it.
func with(url, user, query string) string {
	return strings.Replace(url, "://", "://"+user, 1) + query
}

// waitFor waits for something.
func waitFor(t *testing.T, bound time.Duration, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s within %v", what, bound)
		}
	}
}
