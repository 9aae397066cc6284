package nats_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/nats"
	"github.com/lockerproject/locker/internal/testbed"
)

// clusters bounds how many tests have a cluster at once.
var clusters = make(chan struct{}, 2)

// cluster starts three servers with a bucket.
func cluster(t *testing.T) *testbed.Ensemble {
	t.Helper()
	clusters <- struct{}{}
	t.Cleanup(func() { <-clusters })
	e := testbed.NatsCluster(t)
	l := process(t, e.URL())
	waitFor(t, 30*time.Second, "bucket", func() bool { return l.Ping(t.Context()) == nil })
	waitFor(t, 30*time.Second, "bucket with three replicas that have all it has", func() bool {
		info, err := stream(t.Context(), e.Members[0].Addr(), nats.DefaultBucket)
		if err != nil || info == nil || info.Config.Replicas != 3 || info.Cluster == nil || info.Cluster.Leader == "" {
			return false
		}
		return len(info.Cluster.Replicas) == 2 && info.Cluster.Replicas[0].Current && info.Cluster.Replicas[1].Current
	})
	return e
}

// register is the resource that a lock protects: it sees every holder.
type register struct {
	mu      sync.Mutex
	token   uint64
	holders int
	grants  atomic.Int64
}

func (r *register) enter(t *testing.T, k *locker.Lock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.holders++; r.holders > 1 {
		t.Errorf("%d holders at a time, at token %d", r.holders, k.Token())
	}
	if k.Token() <= r.token {
		t.Errorf("token %d was granted after %d", k.Token(), r.token)
	}
	r.token = k.Token()
	r.grants.Add(1)
}

func (r *register) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.holders--
}

// What was written through one server is read through another, which may be behind.
func TestReadAfterWrite(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three servers")
	}
	t.Parallel()
	e := cluster(t)
	var at []*nats.Driver
	for _, m := range e.Members {
		at = append(at, opened(t, m.URL()+"?timeout=10s")) // a server may stand still for a moment
	}
	const key = "raw:q:a"
	var group sync.WaitGroup
	stop := make(chan struct{})
	for i := range 4 { // so that the servers have something to do
		group.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					_ = at[i%3].Store().Set(t.Context(), fmt.Sprint("raw:h:", i), fmt.Append(nil, n), time.Minute)
				}
			}
		})
	}
	for i := range 600 {
		if err := at[i%3].Store().Set(t.Context(), key, fmt.Append(nil, i), time.Minute); err != nil {
			t.Fatal(err)
		}
		for j := range 3 {
			docs, err := at[j].Store().Get(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			if got := string(docs[0].Value); got != fmt.Sprint(i) {
				t.Fatalf("read %s through server %d after %d was written through server %d", got, j, i, i%3)
			}
		}
	}
	close(stop)
	group.Wait()
}

// A server that stood still while others went on gives no old answer when it goes on.
func TestPausedLeader(t *testing.T) {
	testbed.Nightly(t, "run it after a change to how entries are read")
	t.Parallel()
	e := cluster(t)
	const key = "paused:q:a"
	for round := range 2 {
		l := leader(t, e)
		at := opened(t, l.URL()+"?timeout=30s").Store() // knows that one server
		var others []string
		for _, m := range e.Members {
			if m != l {
				others = append(others, m.Addr())
			}
		}
		elsewhere := opened(t, fmt.Sprintf("nats://%s,%s", others[0], others[1])).Store()
		write := func(what string) error { return elsewhere.Set(t.Context(), key, []byte(what), time.Minute) }
		old, fresh := fmt.Sprint("old", round), fmt.Sprint("new", round)
		waitFor(t, time.Minute, "leader", func() bool { return write(old) == nil })
		if _, err := at.Get(t.Context(), key); err != nil {
			t.Fatal(err)
		}
		l.Pause()
		waitFor(t, time.Minute, "other leader", func() bool { return write(fresh) == nil })
		// What is asked now is answered when the server goes on.
		var readers sync.WaitGroup
		for range 8 {
			readers.Go(func() {
				docs, err := at.Get(t.Context(), key)
				if err == nil && string(docs[0].Value) != fresh {
					t.Errorf("read %q after %q was written", docs[0].Value, fresh)
				}
			})
		}
		time.Sleep(200 * time.Millisecond)
		l.Resume()
		readers.Wait()
		l.Wait()
	}
}

// A server stands still with a write, whose client gives up, until all others have forgotten the entry. When it goes
// on it does the write. That makes no ticket, which would live as long as its process.
func TestLateWrite(t *testing.T) {
	testbed.Nightly(t, "run it after a change to what a ticket is written with, or to how long an entry is kept")
	t.Parallel()
	e := cluster(t)
	l := leader(t, e)
	via := e.Members[0]
	if via == l {
		via = e.Members[1]
	}
	p := &pausing{before: []byte(`"i":"late"`), server: via}
	d := given(t, connect(t, via.Addr()+",nats://"+l.Addr(), natsgo.DontRandomize(), natsgo.SetCustomDialer(p), natsgo.Timeout(time.Second),
		natsgo.PingInterval(200*time.Millisecond), natsgo.MaxPingsOutstanding(1), natsgo.MaxReconnects(-1), natsgo.ReconnectWait(50*time.Millisecond)))
	defer d.Close()
	r := driver.Request{Name: "late", ID: "late", TTL: 10 * time.Second, Renewed: true}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // else another server does it after the timeout
	defer cancel()
	if g, err := d.Acquire(ctx, r); err == nil {
		t.Fatalf("granted %+v by a server that stands still", g)
	}
	waitFor(t, time.Minute, "answer to the release", func() bool {
		err := d.Release(t.Context(), r.Hold(0))
		return err == nil || errors.Is(err, driver.ErrLost)
	})
	time.Sleep(33 * time.Second) // until the entry is forgotten
	via.Resume()
	other := opened(t, l.URL())
	for begun := time.Now(); time.Since(begun) < 5*time.Second; time.Sleep(50 * time.Millisecond) {
		if queue, err := other.Inspect(t.Context(), "late"); err == nil && len(queue) > 0 {
			t.Fatalf("%+v after the release of the ticket", queue)
		}
	}
}

// pausing pauses a server before the first write with some content.
type pausing struct {
	before []byte
	server *testbed.Server
	once   sync.Once
}

// Dial implements natsgo.CustomDialer.
func (p *pausing) Dial(network, addr string) (net.Conn, error) {
	nc, err := net.Dial(network, addr)
	return &pausingConn{nc, p}, err
}

type pausingConn struct {
	net.Conn
	p *pausing
}

func (c *pausingConn) Write(b []byte) (int, error) {
	if bytes.Contains(b, c.p.before) {
		c.p.once.Do(c.p.server.Pause)
	}
	return c.Conn.Write(b)
}

// The leader of three servers is killed while a lock is held and a queue waits: the holder keeps its lock, nobody else
// is granted, and the queue goes on after the release, in order.
func TestLeaderKilled(t *testing.T) {
	testbed.Nightly(t, "run it after a change to how requests are repeated, or to how the driver connects")
	t.Parallel()
	e := cluster(t)
	const name, waiters = "leader", 8
	var reg register
	holder := process(t, e.URL())
	k := take(t, holder, name, locker.WithTTL(25*time.Second))
	reg.enter(t, k)
	var group sync.WaitGroup
	for i := range waiters {
		l, queued := queuing(t, e.URL())
		group.Go(func() {
			k, err := l.Acquire(t.Context(), name)
			if err == nil {
				reg.enter(t, k)
				reg.leave()
				err = k.Release(context.WithoutCancel(t.Context()))
			}
			if err != nil {
				t.Error(err)
			}
		})
		waitFor(t, 10*time.Second, "waiter", func() bool {
			q, err := holder.Inspect(t.Context(), name)
			return err == nil && len(q.Tickets) == i+2
		})
		waitFor(t, 10*time.Second, "waiter that knows it", func() bool { return len(queued) > 0 })
	}
	killed := leader(t, e)
	killed.Kill()
	leader(t, e) // there is another
	select {
	case <-k.Done():
		t.Fatalf("the holder lost its lock with the leader: %v", k.Err())
	case <-time.After(27 * time.Second): // longer than its TTL
	}
	if got := reg.grants.Load(); got != 1 {
		t.Fatalf("%d grants while the first holds", got)
	}
	reg.leave()
	if err := k.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	released := time.Now()
	group.Wait()
	t.Logf("%d waiters went through %v after the release", waiters, time.Since(released).Round(time.Millisecond))
	killed.Start()
}

// Contenders go on while one leader after the other is killed, or stands still, and comes back.
func TestLeadersLostUnderLoad(t *testing.T) {
	testbed.Nightly(t, "run it after a change to how requests are repeated, or to how the driver connects")
	t.Parallel()
	e := cluster(t)
	var reg register
	var group sync.WaitGroup
	stop := make(chan struct{})
	for range 6 {
		l := process(t, e.URL())
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				k, err := l.Acquire(ctx, "load", locker.WithTTL(20*time.Second))
				cancel()
				if err != nil {
					continue // the leader has just gone: the put may be unanswered
				}
				reg.enter(t, k)
				time.Sleep(time.Millisecond)
				reg.leave()
				_ = k.Release(context.Background()) // perhaps unanswered
			}
		})
	}
	for i := range 4 {
		before := reg.grants.Load()
		l := leader(t, e)
		lose, back := l.Kill, l.Start
		if i%2 == 1 {
			lose, back = l.Pause, l.Resume
		}
		begun := time.Now()
		lose()
		waitFor(t, time.Minute, "grants without the leader", func() bool { return reg.grants.Load() > before+30 })
		t.Logf("30 grants %v after the leader was lost", time.Since(begun).Round(time.Millisecond))
		back()
		l.Wait()
	}
	close(stop)
	group.Wait()
	t.Logf("%d grants", reg.grants.Load())
}

// Without a majority nobody is granted anything, and the holder knows in time. All works again when the majority is
// back.
func TestMajorityLost(t *testing.T) {
	testbed.Nightly(t, "run it after a change to what an error says of a store that is down")
	t.Parallel()
	e := cluster(t)
	const ttl = 6 * time.Second
	a, b := process(t, e.URL()), process(t, e.URL())
	k := take(t, a, "majority", locker.WithTTL(ttl))
	e.Members[0].Kill()
	e.Members[1].Kill()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if next, err := b.Acquire(ctx, "majority"); err == nil || !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("%v, %v: want no grant without a majority", next, err)
	}
	select {
	case <-k.Done():
		t.Logf("the holder knew after %v", time.Since(begun).Round(time.Millisecond))
	case <-time.After(ttl + time.Second):
		t.Error("the holder does not know that its lease is over")
	}
	e.Members[0].Start()
	e.Members[1].Start()
	var next *locker.Lock
	waitFor(t, time.Minute, "grant", func() (ok bool) {
		var err error
		next, err = b.TryAcquire(t.Context(), "majority")
		return err == nil
	})
	if next.Token() <= k.Token() {
		t.Errorf("token %d after %d", next.Token(), k.Token())
	}
}
