package redis_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
)

// reshard moves one hash slot between two masters of a cluster.
type reshard struct {
	t        *testing.T
	cluster  *testbed.Ensemble
	slot     int64
	src, dst *goredis.Client
}

// newReshard prepares to move the slot of a key to a master that does not have it.
func newReshard(t *testing.T, cluster *testbed.Ensemble, key string) *reshard {
	t.Helper()
	r := &reshard{t: t, cluster: cluster}
	for _, m := range cluster.Members {
		c := dial(t, m.Addr())
		if r.slot = c.ClusterKeySlot(t.Context(), key).Val(); c.Exists(t.Context(), key).Err() == nil {
			r.src = c
		} else if r.dst == nil {
			r.dst = c
		}
	}
	if r.src == nil || r.dst == nil {
		t.Fatal("no two masters")
	}
	return r
}

func (r *reshard) do(c *goredis.Client, args ...any) string {
	r.t.Helper()
	v, err := c.Do(r.t.Context(), args...).Text()
	if err != nil {
		r.t.Errorf("%v: %v", args, err)
	}
	return v
}

func (r *reshard) begin() {
	r.t.Helper()
	r.do(r.dst, "cluster", "setslot", r.slot, "importing", r.do(r.src, "cluster", "myid"))
	r.do(r.src, "cluster", "setslot", r.slot, "migrating", r.do(r.dst, "cluster", "myid"))
}

// keys returns the keys that have not moved yet, in any order.
func (r *reshard) keys() []string {
	r.t.Helper()
	keys, err := r.src.ClusterGetKeysInSlot(r.t.Context(), int(r.slot), 100).Result()
	if err != nil {
		r.t.Error(err)
	}
	rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	return keys
}

func (r *reshard) move(key string) {
	r.t.Helper()
	host, port, _ := cutAddr(r.dst.Options().Addr)
	r.do(r.src, "migrate", host, port, key, 0, 5000)
}

// end gives the slot to the other master, and reverses the direction.
func (r *reshard) end() {
	r.t.Helper()
	id := r.do(r.dst, "cluster", "myid")
	r.do(r.dst, "cluster", "setslot", r.slot, "node", id)
	r.do(r.src, "cluster", "setslot", r.slot, "node", id)
	for _, m := range r.cluster.Members {
		if c := dial(r.t, m.Addr()); c.Options().Addr != r.src.Options().Addr && c.Options().Addr != r.dst.Options().Addr {
			r.do(c, "cluster", "setslot", r.slot, "node", id)
		}
	}
	r.src, r.dst = r.dst, r.src
}

func cutAddr(addr string) (host, port string, ok bool) {
	for i := len(addr) - 1; i >= 0; i-- {
		if addr[i] == ':' {
			return addr[:i], addr[i+1:], true
		}
	}
	return addr, "", false
}

// asked runs f with a short bound, so that f meets the half-moved slot and does not
// wait until it has moved.
func asked(f func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Millisecond)
	defer cancel()
	return f(ctx)
}

// TestReshardStepByStep: whatever part of a queue has moved to another master,
// nobody is granted beside the holders, and no loss is reported.
func TestReshardStepByStep(t *testing.T) {
	notShort(t)
	t.Parallel()
	cluster := testbed.RedisCluster(t)
	d := openAt(t, cluster.URL())
	for round := range 12 {
		name := newName()
		readers := []driver.Request{
			{Name: name, ID: "reader-1", Shared: true, TTL: time.Minute},
			{Name: name, ID: "reader-2", Shared: true, TTL: time.Minute},
		}
		for _, r := range readers {
			if _, err := d.Acquire(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		var waiters []driver.Request
		grants := make(chan error, 2)
		for _, w := range []driver.Request{
			{Name: name, ID: "writer", TTL: time.Minute, Wait: true},
			{Name: name, ID: "limited", Shared: true, Limit: 5, TTL: time.Minute, Wait: true},
		} {
			joined := make(chan struct{})
			w.Joined = func() { close(joined) }
			go func() {
				_, err := d.Acquire(t.Context(), w)
				grants <- err
			}()
			<-joined
			waiters = append(waiters, w)
		}
		r := newReshard(t, cluster, d.Key(name))
		look := func(what string) { lookHalfMoved(t, d, name, readers, what) }
		r.begin()
		look("nothing moved")
		for left := r.keys(); len(left) > 0; left = r.keys() {
			r.move(left[0])
			look("moved " + left[0])
		}
		r.end()
		if t.Failed() {
			t.Fatalf("round %d", round)
		}
		for _, h := range []driver.Request{readers[0], readers[1], waiters[0], waiters[1]} {
			if err := d.Release(t.Context(), h.Hold(0)); err != nil {
				t.Fatalf("release %s: %v", h.ID, err)
			}
			if h.ID == "reader-2" || h.ID == "writer" {
				if err := <-grants; err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestReshardWholeQueue: a script is not run on a queue that is about to be moved, also if
// each key that a queue may have is there: when the script had removed one, it could use
// no more of the queue.
func TestReshardWholeQueue(t *testing.T) {
	notShort(t)
	t.Parallel()
	cluster := testbed.RedisCluster(t)
	d := openAt(t, cluster.URL())
	name := newName()
	reader := driver.Request{Name: name, ID: "reader", Shared: true, TTL: time.Minute}
	if _, err := d.Acquire(t.Context(), reader); err != nil {
		t.Fatal(err)
	}
	granted := make(chan error, 2)
	for _, w := range []driver.Request{
		{Name: name, ID: "writer", TTL: time.Minute, Wait: true},
		{Name: name, ID: "behind", Shared: true, TTL: time.Minute, Wait: true},
	} {
		joined := make(chan struct{})
		w.Joined = func() { close(joined) }
		go func() { _, err := d.Acquire(t.Context(), w); granted <- err }()
		<-joined
	}
	r := newReshard(t, cluster, d.Key(name))
	if err := r.src.ZAdd(t.Context(), d.Key(name)+":d", goredis.Z{Score: 1, Member: "late"}).Err(); err != nil {
		t.Fatal(err)
	}
	r.begin()
	released := make(chan error, 1)
	go func() { released <- d.Release(t.Context(), reader.Hold(0)) }()
	select {
	case err := <-released:
		t.Fatalf("released while the slot is being moved: %v", err)
	case <-time.After(100 * time.Millisecond): // it has been refused a few times
	}
	for _, key := range r.keys() {
		r.move(key)
	}
	r.end()
	if err := <-released; err != nil {
		t.Error(err)
	}
	for _, id := range []string{"writer", "behind"} {
		if err := <-granted; err != nil {
			t.Error(err)
		}
		if err := d.Release(t.Context(), driver.Hold{Name: name, ID: id}); err != nil {
			t.Errorf("release of the %s: %v", id, err)
		}
	}
}

func openAt(t *testing.T, address string) *redis.Driver {
	t.Helper()
	d, err := open(t.Context(), address, redis.DefaultPrefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	return d.(*redis.Driver)
}

// lookHalfMoved sends all kinds of requests at once for a queue that may be half
// moved.
func lookHalfMoved(t *testing.T, d *redis.Driver, name string, readers []driver.Request, what string) {
	t.Helper()
	var all sync.WaitGroup
	for _, try := range []driver.Request{
		{Name: name, ID: "try-x-" + strconv.Itoa(rand.Int()), TTL: time.Second},
		{Name: name, ID: "try-s-" + strconv.Itoa(rand.Int()), Shared: true, TTL: time.Second},
	} {
		all.Go(func() {
			err := asked(func(ctx context.Context) error { _, err := d.Acquire(ctx, try); return err })
			if err == nil {
				t.Errorf("%s: %s granted beside the readers and ahead of the writer", what, try.ID)
			}
		})
	}
	for _, r := range readers {
		all.Go(func() {
			err := asked(func(ctx context.Context) error { return d.Renew(ctx, r.Hold(0), time.Minute) })
			if errors.Is(err, driver.ErrLost) {
				t.Errorf("%s: %s was notified of a loss", what, r.ID)
			}
		})
	}
	all.Go(func() {
		var q []driver.Ticket
		err := asked(func(ctx context.Context) (err error) { q, err = d.Inspect(ctx, name); return err })
		if err == nil && len(q) != 4 {
			t.Errorf("%s: the queue is shown with %d tickets of 4", what, len(q))
		}
	})
	all.Wait()
}

// TestReshardUnderLoad: readers and writers exclude each other while the slot moves
// to and fro, nobody loses a lock, and all proceed when it has stopped.
func TestReshardUnderLoad(t *testing.T) {
	notShort(t)
	t.Parallel()
	cluster := testbed.RedisCluster(t)
	name := newName()
	probe := openAt(t, cluster.URL())
	if _, err := probe.Acquire(t.Context(), driver.Request{Name: name, ID: "probe", TTL: time.Minute}); err != nil {
		t.Fatal(err)
	}
	if err := probe.Release(t.Context(), driver.Hold{Name: name, ID: "probe"}); err != nil {
		t.Fatal(err)
	}
	r := newReshard(t, cluster, probe.Key(name))
	var readers, writers, grants atomic.Int64
	var stop atomic.Bool
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer func() {
		stop.Store(true)
		cancel()
		all.Wait()
	}()
	for i := range 6 {
		d := openAt(t, cluster.URL())
		all.Go(func() {
			for n := 0; !stop.Load(); n++ {
				q := driver.Request{Name: name, ID: "load-" + strconv.Itoa(i) + "-" + strconv.Itoa(n), TTL: 20 * time.Second, Wait: true, Shared: i%2 == 0}
				if _, err := d.Acquire(ctx, q); err != nil {
					if ctx.Err() == nil && !errors.Is(err, driver.ErrLost) {
						t.Errorf("acquire: %v", err)
					}
					_ = d.Release(t.Context(), q.Hold(0))
					continue
				}
				grants.Add(1)
				mine, others := &writers, &readers
				if q.Shared {
					mine, others = &readers, &writers
				}
				if n := mine.Add(1); others.Load() > 0 || !q.Shared && n > 1 {
					t.Errorf("%d readers and %d writers hold at once", readers.Load(), writers.Load())
				}
				if err := d.Renew(t.Context(), q.Hold(0), 20*time.Second); err != nil {
					t.Errorf("renew: %v", err)
				}
				mine.Add(-1)
				if err := d.Release(t.Context(), q.Hold(0)); err != nil {
					t.Errorf("release: %v", err)
				}
			}
		})
	}
	for range 10 {
		r.begin()
		for left := r.keys(); len(left) > 0; left = r.keys() {
			r.move(left[0])
			time.Sleep(5 * time.Millisecond)
		}
		r.end()
		before := grants.Load()
		until(t, func() error {
			if grants.Load() < before+20 {
				return errors.New("no grants after the slot has moved")
			}
			return nil
		})
	}
	stop.Store(true)
	all.Wait()
	t.Logf("%d grants while the slot moved 10 times", grants.Load())
}
