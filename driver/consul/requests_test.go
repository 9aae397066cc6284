package consul_test

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/consul"
	"github.com/lockerproject/locker/internal/testbed"
)

// counter counts requests.
type counter struct {
	http.RoundTripper
	n atomic.Int64
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.RoundTripper.RoundTrip(r)
}

// counted makes a driver whose requests are counted.
func counted(t testing.TB, addr string, opts ...consul.Option) (*consul.Driver, *counter) {
	t.Helper()
	c := &counter{RoundTripper: newTransport(t)}
	return driverOver(t, addr, c, opts...), c
}

func TestRequestsUncontended(t *testing.T) {
	d, c := counted(t, testbed.SharedConsul(t).Addr())
	l := newLocker(t, d)
	release(t, acquire(t, l, t.Name())) // makes the session
	const cycles = 500
	before := c.n.Load()
	for range cycles {
		release(t, acquire(t, l, t.Name()))
	}
	if per := float64(c.n.Load()-before) / cycles; per > 2.2 {
		t.Errorf("%.2f requests for an acquire and a release, want at most 2.2", per)
	}
}

func TestRequestsContended(t *testing.T) {
	const clients, each = 8, 20
	addr := testbed.SharedConsul(t).Addr()
	var counters []*counter
	var lockers []*locker.Client
	for range clients {
		d, c := counted(t, addr)
		counters, lockers = append(counters, c), append(lockers, newLocker(t, d))
		release(t, acquire(t, lockers[len(lockers)-1], t.Name())) // makes the session
	}
	sent := func() (sum int64) {
		for _, c := range counters {
			sum += c.n.Load()
		}
		return sum
	}
	before := sent()
	var group sync.WaitGroup
	for _, l := range lockers {
		group.Go(func() {
			for range each {
				k, err := l.Acquire(t.Context(), t.Name())
				if err != nil {
					t.Error(err)
					return
				}
				if err := k.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	const setUp = 5 * clients // three requests to watch for losses, the key of notices, a ping
	if per := float64(sent()-before-setUp) / (clients * each); per > 4.2 {
		t.Errorf("%.2f requests a grant, want at most 4", per)
	}
}

// Waiters of one process hand over among themselves without reading the queue: the answer to a
// release shows whether the next ticket is there.
func TestRequestsLocalWaiters(t *testing.T) {
	const waiters = 200
	d, c := counted(t, testbed.SharedConsul(t).Addr())
	l := newLocker(t, d)
	k := acquire(t, l, t.Name())
	granted := make(chan *locker.Lock, waiters)
	var group sync.WaitGroup
	for range waiters {
		group.Go(func() { granted <- acquire(t, l, t.Name()) })
	}
	awaitQueue(t, l, t.Name(), waiters+1)
	before := c.n.Load()
	for range waiters {
		release(t, k)
		k = <-granted
	}
	if per := float64(c.n.Load()-before) / waiters; per > 1.7 {
		t.Errorf("%.2f requests for a hand-over within the process, want about 1", per)
	}
	release(t, k)
	group.Wait()
}

// A renewal of very many locks takes one request for their session, and eight to look for
// some of them.
func TestRequestsOfRenewals(t *testing.T) {
	const n = 1100
	addr := testbed.SharedConsul(t).Addr()
	d, c := counted(t, addr)
	d.NotifyLoss(func(h driver.Hold, err error) { t.Errorf("%q is lost: %v", h.Name, err) })
	rs := make([]driver.Renewal, n)
	var group sync.WaitGroup
	slots := make(chan struct{}, 64)
	for i := range rs {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			r := request(fmt.Sprint(t.Name(), "/", i))
			r.TTL, r.Wait = time.Minute, true
			g, err := d.Acquire(t.Context(), r)
			if err != nil {
				t.Error(err)
			}
			rs[i] = driver.Renewal{Hold: r.Hold(g.Token), TTL: r.TTL}
		})
	}
	group.Wait()
	client := newClient(t, addr)
	awaitLossWatch(t, client, sessionOf(t, client, rs[0].Name))
	for before := int64(-1); before != c.n.Load(); time.Sleep(2 * time.Second) { // the watch looks for all of them
		before = c.n.Load()
	}
	before := c.n.Load()
	for i, err := range d.RenewAll(t.Context(), rs) {
		if err != nil {
			t.Fatalf("renewal of %q: %v", rs[i].Name, err)
		}
	}
	if took := c.n.Load() - before; took != 9 {
		t.Errorf("%d renewals took %d requests, want 9", n, took)
	}
}

// A process that waits for very many names needs few connections.
func TestManyNames(t *testing.T) {
	t.Parallel()
	const names = 300
	srv := testbed.SharedConsul(t)
	var open, most atomic.Int64
	transport := newTransport(t)
	transport.MaxConnsPerHost = 120
	d := driverOver(t, srv.Addr(), inFlight{transport, &open, &most})
	holder, waiter := newLocker(t, first(counted(t, srv.Addr()))), newLocker(t, d)
	var held []*locker.Lock
	granted := make(chan *locker.Lock, names)
	for i := range names {
		name := fmt.Sprintf("%s/%d", t.Name(), i)
		held = append(held, acquire(t, holder, name))
		go func() { granted <- acquire(t, waiter, name) }()
	}
	for _, k := range held { // all wait
		awaitQueue(t, holder, k.Name(), 2)
	}
	most.Store(0)
	for _, k := range held {
		var next *locker.Lock
		took := testbed.Elapsed(func() {
			release(t, k)
			next = <-granted
		})
		if took > 2*time.Second {
			t.Fatalf("the hand-over of %q took %v", k.Name(), took)
		}
		release(t, next)
	}
	if most.Load() > 100 {
		t.Errorf("%d requests at once, want at most 48 + 32 and a few", most.Load())
	}
}

// inFlight notes how many requests were under way at once.
type inFlight struct {
	http.RoundTripper
	open, most *atomic.Int64
}

func (f inFlight) RoundTrip(r *http.Request) (*http.Response, error) {
	n := f.open.Add(1)
	defer f.open.Add(-1)
	for {
		most := f.most.Load()
		if n <= most || f.most.CompareAndSwap(most, n) {
			break
		}
	}
	return f.RoundTripper.RoundTrip(r)
}
