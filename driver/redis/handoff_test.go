package redis_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
)

// losses is a network that loses the requests that contain a text.
type losses struct {
	mu     sync.Mutex
	text   []byte       // nil: it loses none
	fails  atomic.Int64 // how often the client was told so, if that is not negative
	silent atomic.Bool  // what the server publishes does not arrive

	late    []byte   // the answer to the next request that contains it is held back; nil: none
	lateOn  net.Conn // the next answer on it is held back; nil: none
	held    chan struct{}
	deliver chan struct{}
}

type lossy struct {
	net.Conn
	of *losses
}

func (c lossy) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	for err == nil && c.of.silent.Load() && bytes.Contains(b[:n], []byte("message")) {
		n, err = c.Conn.Read(b)
	}
	c.of.mu.Lock()
	held, deliver, late := c.of.held, c.of.deliver, c.of.lateOn == c.Conn
	if late {
		c.of.lateOn = nil
	}
	c.of.mu.Unlock()
	if late {
		close(held)
		<-deliver
	}
	return n, err
}

// hold holds back the answer to the next request that contains a text: held is closed when there is one, and closing
// deliver delivers it.
func (l *losses) hold(text string) (held <-chan struct{}, deliver chan<- struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.late, l.held, l.deliver = []byte(text), make(chan struct{}), make(chan struct{})
	return l.held, l.deliver
}

func (l *losses) lose(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = []byte(text)
}

func (c lossy) Write(b []byte) (int, error) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	if len(c.of.text) > 0 && bytes.Contains(b, c.of.text) {
		if c.of.fails.Load() >= 0 {
			c.of.fails.Add(1)
			return 0, errors.New("broken")
		}
		return len(b), nil
	}
	if len(c.of.late) > 0 && bytes.Contains(b, c.of.late) {
		c.of.late, c.of.lateOn = nil, c.Conn
	}
	return c.Conn.Write(b)
}

// relay is a queue in which one process has tickets one behind the other.
type relay struct {
	t       *testing.T
	client  *goredis.Client
	network *losses
	d       *redis.Driver
	name    string
	ids     []string
	grants  []chan error
}

func newRelay(t *testing.T) *relay {
	t.Helper()
	addr := testbed.SharedRedis(t).Addr()
	r := &relay{t: t, network: &losses{}}
	r.network.fails.Store(-1)
	client := goredis.NewClient(&goredis.Options{
		Addr: addr, MaxRetries: -1, ReadTimeout: time.Minute, // a request that is lost is not sent again by the client
		PoolSize: 3, PoolTimeout: time.Minute,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, network, addr)
			return lossy{c, r.network}, err
		},
	})
	d, err := redis.New(client)
	if err != nil {
		t.Fatal(err)
	}
	r.client, r.d = client, d
	t.Cleanup(func() { _, _ = client.Close(), d.Close() })
	return r
}

// queue has tickets queued, each directly behind the one before it; the first one holds.
func (r *relay) queue(n int) {
	r.t.Helper()
	r.name, r.ids, r.grants = newName(), nil, nil
	for range n {
		if err := <-r.enqueue(rand.Text()); err != nil {
			r.t.Fatal(err)
		}
	}
	r.granted(0)
}

// enqueue has one more ticket queued. The channel says when it is, or was granted.
func (r *relay) enqueue(id string) (queued <-chan error) {
	joined, granted := make(chan error, 2), make(chan error, 1)
	req := driver.Request{Name: r.name, ID: id, TTL: time.Minute, Renewed: true, Wait: true, Joined: func() { joined <- nil }}
	go func() {
		_, err := r.d.Acquire(r.t.Context(), req)
		granted <- err
		joined <- err
	}()
	r.ids, r.grants = append(r.ids, id), append(r.grants, granted)
	return joined
}

func (r *relay) hold(i int) driver.Hold { return driver.Hold{Name: r.name, ID: r.ids[i]} }

func (r *relay) granted(i int) {
	r.t.Helper()
	select {
	case err := <-r.grants[i]:
		if err != nil {
			r.t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		r.t.Fatalf("ticket %d is not granted", i)
	}
}

func (r *relay) release(i int) {
	r.t.Helper()
	if err := r.d.Release(r.t.Context(), r.hold(i)); err != nil {
		r.t.Fatalf("release of ticket %d: %v", i, err)
	}
}

// repeat releases a ticket as the core does: until the release is answered.
func (r *relay) repeat(i int) error {
	for unanswered := false; ; unanswered = true {
		err := r.d.Release(r.t.Context(), r.hold(i))
		switch {
		case unanswered && errors.Is(err, driver.ErrLost):
			return nil
		case !driver.IsUnavailable(err) || r.t.Context().Err() != nil:
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// notLost fails if a ticket that the server has not granted yet is taken for lost.
func (r *relay) notLost(i int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := r.d.Renew(ctx, r.hold(i), time.Minute); !errors.Is(err, context.DeadlineExceeded) || !driver.IsUnavailable(err) {
		r.t.Fatalf("renewal of ticket %d, which the server has not granted: %v", i, err)
	}
	errs := r.d.RenewAll(r.t.Context(), []driver.Renewal{{Hold: r.hold(i), TTL: time.Minute}})
	if !driver.IsUnavailable(errs[0]) {
		r.t.Fatalf("renewal, with others, of ticket %d, which the server has not granted: %v", i, errs[0])
	}
}

// handed reports whether a ticket was handed the lock. One that has waited for too long was not.
func (r *relay) handed(i int) bool {
	r.t.Helper()
	select {
	case err := <-r.grants[i]:
		if err != nil {
			r.t.Fatal(err)
		}
		return true
	case <-time.After(time.Second):
		return false
	}
}

// TestHandOver: a release hands the lock to the next ticket of the process while the server does not get it, and so does the
// release of that one, which the server gets. It grants the last ticket when it has both.
func TestHandOver(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	for attempt := 1; ; attempt++ {
		r.queue(4)
		r.release(0) // nobody waited in front of the second ticket when it was queued
		r.granted(1)
		r.network.lose(r.ids[1])
		first := make(chan error, 1)
		go func() { first <- r.repeat(1) }()
		handed := r.handed(2)
		if handed {
			r.notLost(2)
			r.release(2) // it does not wait for the other
			if handed = r.handed(3); handed {
				r.notLost(3)
				r.grants[3] <- nil
			}
		}
		r.network.lose("")
		begun := time.Now()
		if err := <-first; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > 20*time.Second {
			t.Errorf("the release is answered %v after the server can get it", took)
		}
		if !handed && attempt < 20 {
			continue
		}
		if !handed {
			t.Fatal("no ticket was handed the lock")
		}
		r.granted(3)
		if err := r.d.Renew(t.Context(), r.hold(3), time.Minute); err != nil {
			t.Fatal(err)
		}
		list, err := r.d.Inspect(t.Context(), r.name)
		if err != nil || len(list) != 1 || list[0].ID != r.ids[3] || !list[0].Held {
			t.Fatalf("the queue is %+v, %v; want ticket %s, which holds", list, err, r.ids[3])
		}
		r.release(3)
		return
	}
}

// TestReleaseWaitsForAConnection: a release that hands the lock on, and is sent late, is not taken for the loss of the lock when
// it is repeated.
func TestReleaseWaitsForAConnection(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	for range 20 {
		r.queue(3)
		r.release(0)
		r.granted(1)
		var busy sync.WaitGroup
		for range r.client.Options().PoolSize {
			busy.Go(func() { r.client.Do(t.Context(), "blpop", "nothing:"+r.name, "0.7") })
		}
		time.Sleep(20 * time.Millisecond)
		busy.Go(func() { _, _ = r.d.Inspect(t.Context(), "another") }) // the release is not sent by its caller
		time.Sleep(5 * time.Millisecond)
		err := r.repeat(1)
		busy.Wait()
		if !r.handed(2) {
			continue
		}
		if err != nil {
			t.Errorf("the release: %v", err)
		}
		r.release(2)
		return
	}
	t.Fatal("no ticket was handed the lock")
}

// TestNotHandedOver: a ticket that never held hands the lock to nobody when it is released, and one that was released while it
// waited gets no lock.
func TestNotHandedOver(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	lost := func(i int) {
		t.Helper()
		if err := <-r.grants[i]; !errors.Is(err, driver.ErrLost) {
			t.Errorf("ticket %d, which was released while it waited: %v, want ErrLost", i, err)
		}
	}
	r.queue(3)
	r.release(1)
	select {
	case err := <-r.grants[2]:
		t.Fatalf("a ticket was granted when the one before it was removed, while another holds: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	lost(1)
	r.release(0)
	r.granted(2)
	r.release(2)

	r.queue(4)
	r.release(0)
	r.granted(1)
	r.network.silent.Store(true) // nothing but the answer to the release says that the ticket has gone
	r.release(2)
	r.release(1)
	lost(2)
}

// TestReleasedBeforeItsAnswer: a ticket that was released before its process has read that it is queued is handed nothing, though nothing
// else tells the process of its end. One that was not released is handed the lock.
func TestReleasedBeforeItsAnswer(t *testing.T) {
	t.Parallel()
	for name, attempts := range map[string]int{"released": 3, "not released": 20} { // a ticket that has waited for too long is not handed the lock
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRelay(t)
			handed := false
			for range attempts {
				if handed = r.handsAfterALateAnswer(name == "released"); handed {
					break
				}
			}
			if released := name == "released"; handed == released {
				t.Errorf("the lock was handed to the ticket: %v", handed)
			}
		})
	}
}

// handsAfterALateAnswer reports whether a ticket is handed the lock by the one before it. Its process reads late that it is queued, and
// is told nothing else; it may have been released by then.
func (r *relay) handsAfterALateAnswer(released bool) bool {
	r.t.Helper()
	r.network.silent.Store(false)
	r.queue(3)
	release := func(i int) bool {
		err := r.d.Release(r.t.Context(), r.hold(i))
		if err != nil && !errors.Is(err, driver.ErrLost) { // its provisional lease is over, if this process stood still
			r.t.Fatalf("release of ticket %d: %v", i, err)
		}
		return err == nil
	}
	if !release(0) {
		return false
	}
	r.granted(1)
	late := rand.Text()
	held, deliver := r.network.hold(late)
	queued := r.enqueue(late)
	<-held
	r.network.silent.Store(true)
	if released && !release(3) {
		close(deliver)
		return false
	}
	close(deliver)
	if err := <-queued; err != nil || !release(1) {
		return false
	}
	return r.isHanded(2) && release(2) && r.isHanded(3)
}

// isHanded reports whether a ticket is granted soon, as only a hand-over is.
func (r *relay) isHanded(i int) bool {
	select {
	case err := <-r.grants[i]:
		return err == nil
	case <-time.After(200 * time.Millisecond):
		return false
	}
}

// TestBreakOfAWaiterThatMayBeHanded: a ticket whose Break has returned is handed nothing, though its process is not notified.
func TestBreakOfAWaiterThatMayBeHanded(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	other := openAt(t, testbed.SharedRedis(t).URL())
	r.queue(4)
	r.release(0)
	r.granted(1)
	list, err := other.Inspect(t.Context(), r.name)
	if err != nil || len(list) != 3 {
		t.Fatalf("the queue is %+v, %v; want three tickets", list, err)
	}
	r.network.silent.Store(true)
	begun := time.Now()
	if err := other.Break(t.Context(), r.name, list[1].Token); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 5*time.Second {
		t.Errorf("Break took %v", took)
	}
	r.release(1)
	select {
	case err := <-r.grants[2]:
		if err == nil {
			t.Error("the ticket that was broken is granted")
		}
	case <-time.After(200 * time.Millisecond):
	}
}

// TestReleaseFails: a release that hands the lock over and fails at once is an error, and is not repeated. Who is handed the lock
// by the next release, which does not fail, has not lost it.
func TestReleaseFails(t *testing.T) {
	t.Parallel()
	r := newRelay(t)
	for range 20 {
		r.queue(4)
		r.release(0)
		r.granted(1)
		r.network.fails.Store(0)
		r.network.lose(r.ids[1])
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		err := r.d.Release(ctx, r.hold(1))
		cancel()
		if n := r.network.fails.Load(); err == nil || n > 10 {
			t.Fatalf("after %d requests: %v", n, err)
		}
		r.network.fails.Store(-1)
		r.network.lose("")
		if !r.handed(2) {
			continue
		}
		r.release(2)
		if !r.handed(3) {
			continue
		}
		r.notLost(3)
		r.release(1)
		if err := r.d.Renew(t.Context(), r.hold(3), time.Minute); err != nil {
			t.Fatal(err)
		}
		return
	}
	t.Fatal("no ticket was handed the lock")
}
