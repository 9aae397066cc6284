package nats_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/nats"
	"github.com/lockerproject/locker/internal/testbed"
)

// A connection keeps its mutex while it writes to a server that stands still, and while it reconnects to one. Calls
// return all the same when their context ends, and Close in time.
func TestServerStandsStill(t *testing.T) { // alone: it bounds milliseconds
	for what, open := range map[string]func(*testing.T, *testbed.Server) driver.Driver{
		"a connection that tries to come back": func(t *testing.T, srv *testbed.Server) driver.Driver {
			nc := connect(t, srv.Addr(), natsgo.MaxReconnects(-1), natsgo.ReconnectWait(10*time.Millisecond), natsgo.ReconnectJitter(0, 0),
				natsgo.PingInterval(50*time.Millisecond), natsgo.MaxPingsOutstanding(1))
			d := given(t, nc)
			srv.Pause()
			waitFor(t, 20*time.Second, "end of the connection", func() bool { return !nc.IsConnected() })
			time.Sleep(200 * time.Millisecond) // until it waits for the server's greeting
			return d
		},
		"a given connection whose buffers are full": func(t *testing.T, srv *testbed.Server) driver.Driver {
			d := given(t, connect(t, srv.Addr()))
			srv.Pause()
			fill(t, d)
			return d
		},
		"an own connection whose buffers are full": func(t *testing.T, srv *testbed.Server) driver.Driver {
			d := opened(t, srv.URL()+"?timeout=20s")
			if err := d.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			srv.Pause()
			fill(t, d)
			return d
		},
	} {
		t.Run(what, func(t *testing.T) {
			srv := testbed.Nats(t, testbed.Faults())
			d := open(t, srv)
			defer srv.Resume()
			for range 5 {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				took := testbed.Elapsed(func() {
					if err := d.Renew(ctx, driver.Hold{Name: "a", ID: "1"}, time.Minute); err == nil || errors.Is(err, driver.ErrLost) {
						t.Errorf("a renewal without an answer: %v", err)
					}
				})
				cancel()
				if took > 70*time.Millisecond {
					t.Errorf("a call returned after %v, and its context ended after 20 ms", took)
				}
			}
			if took := testbed.Elapsed(func() { _ = d.Close() }); took > 150*time.Millisecond {
				t.Errorf("Close took %v", took)
			}
		})
	}
}

// given makes a driver on a connection, and a request, so that the driver knows its bucket.
func given(t *testing.T, nc *natsgo.Conn) *nats.Driver {
	t.Helper()
	d, err := nats.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	// A connection with a short PingInterval may be lost, and come back, while a busy machine makes the bucket.
	waitFor(t, 30*time.Second, "bucket", func() bool { return d.Ping(t.Context()) == nil })
	return d
}

// fill writes more than the buffers between the driver and a server hold.
func fill(t *testing.T, d *nats.Driver) {
	t.Helper()
	const each, all = 512 << 10, 32 << 20
	var writers sync.WaitGroup
	t.Cleanup(writers.Wait)
	for range all / each {
		writers.Go(func() { _ = d.Store().Set(t.Context(), "fill:n:a", make([]byte, each), time.Minute) })
	}
	time.Sleep(300 * time.Millisecond)
}

// Close ends all calls that are under way, and leaves no subscription on the program's own connection.
func TestCloseBesideAll(t *testing.T) { // alone: it bounds milliseconds
	srv := testbed.SharedNats(t)
	nc := connect(t, srv.Addr())
	for what, d := range map[string]*nats.Driver{"given": given(t, nc), "own": opened(t, srv.URL())} {
		name := "beside-" + what
		if _, err := d.Acquire(t.Context(), driver.Request{Name: name, ID: "holder", TTL: time.Minute}); err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		call := func(f func() error) {
			calls.Go(func() {
				for !errors.Is(f(), driver.ErrClosed) {
					continue
				}
			})
		}
		for i := range 4 {
			r := driver.Request{Name: name, ID: fmt.Sprint(i), TTL: time.Minute, Renewed: true, Wait: true}
			call(func() error { _, err := d.Acquire(t.Context(), r); return err })
			call(func() error { _, err := d.Inspect(t.Context(), name); return err })
			call(func() error { _, err := d.ServerVersion(t.Context()); return err })
			call(func() error { return d.Ping(t.Context()) })
			call(func() error { return d.Store().Watch(t.Context(), "beside:n:a", func() {}) })
		}
		time.Sleep(200 * time.Millisecond)
		if took := testbed.Elapsed(func() { _ = d.Close() }); took > 150*time.Millisecond {
			t.Errorf("%s: Close took %v", what, took)
		}
		calls.Wait()
	}
	waitFor(t, 5*time.Second, "end of what the driver subscribed to", func() bool { return nc.NumSubscriptions() <= 1 }) // answers
}
