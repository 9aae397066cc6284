package redlock

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
	"github.com/lockerproject/locker/internal/testbed"
)

// trio is a driver over three nodes, whose ways to them can be cut, and clients that reach them past these ways.
type trio struct {
	t       *testing.T
	d       *Driver
	ways    []*testbed.Proxy
	members []*testbed.Server
	direct  []*redis.Client
}

func newTrio(t *testing.T, opts ...Option) *trio {
	t.Helper()
	x := &trio{t: t, members: testbed.RedisN(t, 3).Members}
	var clients []redis.UniversalClient
	for _, m := range x.members {
		way := m.Proxy(t)
		c, direct := redis.NewClient(&redis.Options{Addr: way.Addr(), DialerRetries: 1, PoolSize: 100}), redis.NewClient(&redis.Options{Addr: m.Addr()})
		t.Cleanup(func() { _, _ = c.Close(), direct.Close() })
		x.ways, x.direct, clients = append(x.ways, way), append(x.direct, direct), append(clients, c)
	}
	var err error
	if x.d, err = New(clients, opts...); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = x.d.Close() })
	if err := x.d.mayUse(t.Context(), "name", true); err != nil {
		t.Fatal(err)
	}
	x.d.numbers.above(uint64(time.Now().Add(time.Hour).UnixMicro())) //nolint:gosec // positive: no guess is too small
	for node := range x.ways {                                       // the nodes know the scripts from now on: a request is sent once
		x.answered(node)
	}
	return x
}

func (x *trio) key() string { return x.d.keys.Main("name") }

func (x *trio) holds(node int) bool {
	return x.direct[node].Exists(context.Background(), x.key()).Val() == 1
}

func (x *trio) waits(node int, id string) bool {
	return x.direct[node].ZScore(context.Background(), x.key()+":rx", id).Err() == nil
}

// queued waits until a ticket is in the queues of all nodes.
func (x *trio) queued(id string) {
	x.t.Helper()
	x.until("queued on all nodes", func() bool { return x.waits(0, id) && x.waits(1, id) && x.waits(2, id) })
}

func (x *trio) until(what string, ok func() bool) {
	x.t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			x.t.Fatalf("%s: not within 10s", what)
		}
	}
}

// answered waits until a node has answered all that was sent to it and is to be sent again.
func (x *trio) answered(node int) {
	x.t.Helper()
	n := x.d.nodes[node]
	x.until("the node is not asked again", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.owed) == 0
	})
	time.Sleep(20 * time.Millisecond) // the timer has fired, and sends
	x.send(node, x.inspect())
}

func (x *trio) inspect() *redisqueue.Call {
	return x.d.keys.Call(redisqueue.RedlockInspect, []string{x.key()})
}

// send runs a script on a node.
func (x *trio) send(node int, c *redisqueue.Call) {
	x.t.Helper()
	done := make(chan error)
	x.d.nodes[node].send(c, func(_ any, err error) { done <- err })
	if err := <-done; err != nil {
		x.t.Fatal(err)
	}
}

// fails sends a script to a node. The result waits until the node has not answered.
func (x *trio) fails(node int, c *redisqueue.Call) func() {
	done := make(chan error, 1)
	x.d.nodes[node].send(c, func(_ any, err error) { done <- err })
	return func() {
		x.t.Helper()
		if err := <-done; err == nil {
			x.t.Fatal("answered")
		}
	}
}

// split asks for a ticket that one node grants, one refuses, and one does not answer and is not reached any more. It returns the proposal.
func (x *trio) split(tk *ticket) *proposal {
	x.t.Helper()
	x.direct[1].Set(context.Background(), x.key(), "theirs", time.Minute)
	lost := x.ways[2].LoseReply(tk.r.ID)
	p, err := x.d.ask(context.Background(), tk, x.d.numbers.guess(), orLeave, guessed)
	<-lost
	x.ways[2].Refuse()
	if err != nil || p.outcome != split {
		x.t.Fatalf("outcome %d, %v", p.outcome, err)
	}
	return p
}

func (x *trio) ticket() *ticket {
	return x.d.newTicket(driver.Request{Name: "name", ID: "try", TTL: time.Minute})
}

// What a try gives back does not take from it what a later attempt of the same try was granted, though the release reaches a
// node after it.
func TestGivenBackLate(t *testing.T) {
	t.Parallel()
	x := newTrio(t)
	tk := x.ticket()
	p := x.split(tk)
	if err := x.d.giveBack(t.Context(), tk, p); !errors.Is(err, driver.ErrNotAcquired) {
		t.Fatal(err)
	}
	x.fails(2, x.inspect())() // and so has the release before
	x.ways[2].Heal()
	number, origin := p.next()
	p, err := x.d.ask(t.Context(), tk, number, orLeave, origin)
	if err != nil || p.outcome != granted {
		t.Fatalf("outcome %d, %v: %v", p.outcome, err, p.errs)
	}
	if !x.holds(2) {
		t.Fatal("granted without the third node")
	}
	x.answered(2)
	if !x.holds(2) {
		t.Error("the third node has released what it holds")
	}
}

// A node whose answer to an attempt was lost refuses that attempt after its release, and no later one.
func TestGivenBackUnanswered(t *testing.T) {
	t.Parallel()
	x := newTrio(t)
	x.direct[1].Set(t.Context(), x.key(), "theirs", time.Minute)
	lost := x.ways[2].LoseReply("try")
	if _, err := x.d.try(t.Context(), x.ticket(), splits); err != nil {
		t.Error(err)
	}
	select {
	case <-lost:
	default:
		t.Error("the third node has answered the first attempt")
	}
}

// A node that a try has not been able to give back is asked again, whether or not it had answered the try.
func TestGiveBackUnanswered(t *testing.T) {
	t.Parallel()
	x := newTrio(t)
	tk := x.ticket()
	p := x.split(tk)
	x.ways[0].Refuse()
	x.ways[0].Reset()
	if err := x.d.giveBack(t.Context(), tk, p); !errors.Is(err, driver.ErrNotAcquired) {
		t.Fatal(err)
	}
	x.ways[0].Heal()
	x.until("the first node has released the try", func() bool { return !x.holds(0) })
}

// A ticket that is released while it is asked for is not granted, and no node gets it again.
func TestReleasedBeforeGranted(t *testing.T) {
	t.Parallel()
	for _, wait := range []bool{false, true} {
		x := newTrio(t, patient)
		x.direct[2].Set(t.Context(), x.key(), "theirs", time.Minute) // it lacks the ticket
		x.ways[0].HoldReplies(true)
		x.ways[1].HoldReplies(true)
		r := driver.Request{Name: "name", ID: "try", TTL: time.Minute, Wait: wait}
		acquired, released := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := x.d.Acquire(context.Background(), r)
			acquired <- err
		}()
		x.until("held on two nodes", func() bool { return x.holds(0) && x.holds(1) })
		go func() { released <- x.d.Release(context.Background(), r.Hold(0)) }()
		x.until("released on the third node", func() bool {
			n, _ := x.direct[2].Do(t.Context(), "info", "commandstats").Text()
			return strings.Contains(n, "cmdstat_hdel") // by redlock_release.lua, which finds nothing
		})
		x.ways[0].HoldReplies(false)
		x.ways[1].HoldReplies(false)
		if err := <-acquired; !errors.Is(err, driver.ErrLost) {
			t.Errorf("wait=%t: acquired: %v, want ErrLost", wait, err)
		}
		if err := <-released; err != nil {
			t.Errorf("wait=%t: released: %v", wait, err)
		}
		x.direct[2].Del(t.Context(), x.key())
		x.answered(2)
		if x.holds(0) || x.holds(1) || x.holds(2) {
			t.Errorf("wait=%t: a node has the ticket after its release", wait)
		}
	}
}

// A release leaves a tombstone if a request was not answered when the release is sent, though it was made before.
func TestReleaseBehindRequest(t *testing.T) {
	t.Parallel()
	x := newTrio(t)
	n, tk := x.d.nodes[0], x.ticket()
	number := x.d.numbers.guess()
	acquire := func() *redisqueue.Call { return x.d.acquireCall(tk, time.Minute, number, 1, orLeave, guessed) }
	x.ways[0].Lose()
	failed := x.fails(0, acquire())
	release := x.d.releaseCall(n, removal{h: tk.r.Hold(0)})
	failed()
	x.ways[0].Heal()
	x.send(0, release)
	x.send(0, acquire())
	if x.holds(0) {
		t.Error("the request has arrived after its release, and holds")
	}
}

// A ticket with a short lease that is lost while it waits is removed from a node that was not reached at first: the
// heartbeats of its process would keep it there.
func TestLostBeforeLong(t *testing.T) {
	t.Parallel()
	x := newTrio(t)
	if _, err := x.d.Acquire(t.Context(), driver.Request{Name: "name", ID: "holder", TTL: time.Minute, Wait: true}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	lost, queued := make(chan error, 1), make(chan struct{}, 2)
	for _, id := range strings.Fields("other waiter") {
		go func() {
			_, err := x.d.Acquire(ctx, driver.Request{Name: "name", ID: id, TTL: 500 * time.Millisecond, Wait: true, Joined: func() { queued <- struct{}{} }})
			if id == "waiter" {
				lost <- err
			}
		}()
		<-queued
	}
	defer cancel()
	x.queued("waiter")
	x.ways[2].Refuse()
	x.ways[2].Reset()
	for node := range 2 {
		n := x.direct[node].ZScore(t.Context(), x.key()+":rx", "waiter").Val()
		x.send(node, x.d.keys.Call(redisqueue.RedlockBreak, []string{x.key()}, int64(n), "name"))
	}
	if err := <-lost; !errors.Is(err, driver.ErrLost) {
		t.Fatal(err)
	}
	x.fails(2, x.inspect())() // and so has the release before
	x.ways[2].Heal()
	x.until("gone from the third node", func() bool { return !x.waits(2, "waiter") })
}

// A waiter whose number a node does not take any more, since a larger one has held there, queues again when another node that has
// its ticket is down: no majority can grant it, and it would block the others. If that one is only slow, it is granted.
func TestTooSmallForAMajority(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault func(*testbed.Proxy)
		want  error
	}{
		"silent": {func(p *testbed.Proxy) { p.Refuse() }, driver.ErrLost},
		"slow":   {func(p *testbed.Proxy) { p.Delay(50 * time.Millisecond) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x := newTrio(t)
			if _, err := x.d.Acquire(t.Context(), driver.Request{Name: "name", ID: "holder", TTL: time.Minute}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			got, queued := make(chan error, 1), make(chan struct{})
			go func() {
				_, err := x.d.Acquire(ctx, driver.Request{Name: "name", ID: "waiter", TTL: time.Minute, Wait: true, Joined: func() { close(queued) }})
				got <- err
			}()
			<-queued
			x.queued("waiter")
			// The third node has lost its data, and another name that shares the fence was granted there.
			x.direct[2].FlushAll(ctx)
			x.direct[2].HSet(ctx, x.d.fences(), bucket("name"), time.Now().Add(2*time.Hour).UnixMicro())
			c.fault(x.ways[0])
			if err := x.d.Release(ctx, driver.Hold{Name: "name", ID: "holder"}); err != nil {
				t.Fatal(err)
			}
			if err := <-got; !errors.Is(err, c.want) {
				t.Error(err)
			}
		})
	}
}

// A ticket that is released while it waits, or lost, is not queued again by what its process has heard of it before.
func TestGoneBeforeRequeue(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(x *trio, w *waiter){
		"released": func(x *trio, w *waiter) {
			if err := x.d.Release(x.t.Context(), w.t.r.Hold(0)); !errors.Is(err, driver.ErrLost) {
				x.t.Fatal(err)
			}
		},
		"lost": func(x *trio, w *waiter) {
			x.d.heartbeats.Close()
			x.d.heartbeats.Enter("name", w.t.inQueue(), time.Now().Add(-redisqueue.Liveness)) // nobody answers
			w.first, w.absent, w.barred = 1<<1, 1<<2, 1<<2
			if _, lost := x.d.check(w); !lost {
				x.t.Fatal("not lost, though no majority can grant it")
			}
		},
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			x := newTrio(t)
			w := x.d.register(x.ticket())
			w.t.number = x.d.numbers.guess()
			x.d.settle(w)
			end(x, w)
			x.d.requeue(x.d.nodes[0], w)
			x.answered(0)
			if n := x.direct[0].Exists(t.Context(), x.key()+":rx").Val(); n != 0 {
				t.Error("it is in the queue")
			}
		})
	}
}

// A node that holds a ticket of a waiter gives it back, but not what it holds for an attempt that begins at that moment.
func TestYieldBesideAnAttempt(t *testing.T) {
	t.Parallel()
	x := newTrio(t)
	w := x.d.register(x.ticket())
	number := x.d.numbers.guess()
	for range 300 {
		x.d.settle(w)
		var group sync.WaitGroup
		group.Go(func() { x.d.receivedState(0, w.t.inQueue(), redisqueue.IsHeld, false) })
		group.Go(func() {
			x.d.mu.Lock() // as check begins an attempt
			w.asking = true
			x.d.mu.Unlock()
			x.send(0, x.d.acquireCall(w.t, time.Minute, number, w.t.attempts.Add(1), orWait, kept))
		})
		group.Wait()
		x.send(0, x.inspect())
		if !x.holds(0) {
			t.Fatal("the node has given back what it holds for the attempt")
		}
	}
}
