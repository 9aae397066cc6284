package zookeeper_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testbed"
)

// queueOf waits until the queue of name, as c sees it, has n tickets.
func queueOf(t testing.TB, c *locker.Client, name string, n int) []locker.Ticket {
	t.Helper()
	ctx := ctxFor(t, 30*time.Second)
	for {
		l, err := c.Inspect(ctx, name)
		if err == nil && len(l.Tickets) == n {
			return l.Tickets
		}
		if ctx.Err() != nil {
			t.Fatalf("the queue of %s is %v (error %v), want %d tickets", name, l.Tickets, err, n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// TestLeaderDies kills the leader of an ensemble while a lock is held and others
// wait: nobody loses anything, and the queue goes on in order. With this session
// locks outlast an election of 11 s, see the package comment.
func TestLeaderDies(t *testing.T) {
	t.Parallel()
	slot(t)
	e := testbed.ZookeeperEnsemble(t, testbed.Faults(), testbed.Args("maxSessionTimeout=30000"))
	at := e.URL() + "?session=30s"
	ctx := ctxFor(t, 90*time.Second)
	holder := client(t, at)
	k := must[*locker.Lock](t)(holder.Acquire(ctx, "x"))

	const waiters = 4
	var inside atomic.Int64
	type grant struct {
		i     int
		token uint64
	}
	grants := make(chan grant, waiters)
	var group sync.WaitGroup
	for i := range waiters {
		c := client(t, at)
		group.Go(func() {
			k, err := c.Acquire(ctx, "x")
			if err != nil {
				t.Errorf("waiter %d: %v", i, err)
				grants <- grant{i: -1}
				return
			}
			if inside.Add(1) != 1 {
				t.Error("two holders")
			}
			grants <- grant{i, k.Token()}
			time.Sleep(20 * time.Millisecond)
			inside.Add(-1)
			if err := k.Release(ctx); err != nil {
				t.Errorf("waiter %d: %v", i, err)
			}
		})
		queueOf(t, holder, "x", i+2)
	}
	before := queueOf(t, holder, "x", waiters+1)
	leader := e.Leader()
	leader.Kill()
	killed := time.Now()
	e.Leader()
	t.Logf("a new leader after %v", time.Since(killed).Round(time.Millisecond))
	after := queueOf(t, holder, "x", waiters+1)
	for i := range before {
		if before[i].Token != after[i].Token {
			t.Errorf("position %d was %d and is %d after the election", i, before[i].Token, after[i].Token)
		}
	}
	if err := k.Err(); err != nil {
		t.Fatalf("the holder: %v", err)
	}
	if len(grants) > 0 {
		t.Fatal("a waiter was granted while the lock was held")
	}
	if err := k.Release(ctx); err != nil {
		t.Fatal(err)
	}
	last := k.Token()
	for i := range waiters {
		g := <-grants
		if g.i != i || g.token <= last {
			t.Errorf("grant %d went to waiter %d with token %d after %d", i, g.i, g.token, last)
		}
		last = g.token
	}
	group.Wait()
	leader.Start()
	k = must[*locker.Lock](t)(holder.Acquire(ctx, "x"))
	if k.Token() <= last {
		t.Errorf("token %d after %d, in another epoch", k.Token(), last)
	}
	if err := k.Release(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestNoQuorum leaves one member of three: it serves nobody, and the error says
// so.
func TestNoQuorum(t *testing.T) {
	testbed.Nightly(t, "run it after a change to what an error says of a store that is down, or to how the client connects")
	t.Parallel()
	slot(t)
	e := testbed.ZookeeperEnsemble(t, testbed.Faults())
	c := client(t, e.URL()+"?session="+session.String())
	ctx := ctxFor(t, 60*time.Second)
	k := must[*locker.Lock](t)(c.Acquire(ctx, "x"))
	if err := k.Release(ctx); err != nil {
		t.Fatal(err)
	}
	e.Members[0].Kill()
	e.Members[1].Kill()
	begun := time.Now()
	_, err := c.Acquire(ctx, "x")
	if err == nil || errors.Is(err, locker.ErrNotAcquired) || time.Since(begun) > 11*time.Second {
		t.Fatalf("without a quorum: %v after %v", err, time.Since(begun))
	}
	t.Logf("%v, after %v", err, time.Since(begun).Round(time.Millisecond))
}

// TestElectionUnderLoad kills the leader, and later the next one, while many
// clients hold the lock in turn: requests are cut off in every state. Two never
// hold the lock at once, tokens grow, and the queue goes on.
func TestElectionUnderLoad(t *testing.T) {
	testbed.Nightly(t, "run it after a change to requests whose outcome is unknown, or to how the client connects")
	t.Parallel()
	slot(t)
	e := testbed.ZookeeperEnsemble(t, testbed.Faults())
	at := e.URL() + "?session=" + session.String()
	ctx := ctxFor(t, 2*time.Minute)
	var inside, last, grants atomic.Int64
	stop := make(chan struct{})
	var group sync.WaitGroup
	for i := range 6 {
		c := client(t, at)
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				k, err := c.Acquire(ctx, "x")
				if err != nil {
					t.Logf("client %d: %v", i, err) // an election may take longer than enqueueBound
					continue
				}
				if inside.Add(1) != 1 && k.Err() == nil {
					t.Error("two holders")
				}
				if was := last.Swap(int64(k.Token())); was >= int64(k.Token()) {
					t.Errorf("token %d after %d", k.Token(), was)
				}
				grants.Add(1)
				inside.Add(-1)
				if err := k.Release(ctx); err != nil && !errors.Is(err, locker.ErrLost) {
					t.Logf("client %d: %v", i, err)
				}
			}
		})
	}
	more := func() {
		t.Helper()
		for want := grants.Load() + 50; grants.Load() < want; time.Sleep(time.Millisecond) {
			if ctx.Err() != nil {
				t.Fatalf("no more than %d grants", grants.Load())
			}
		}
	}
	more()
	for range 2 {
		leader := e.Leader()
		leader.Kill()
		more()
		leader.Start()
		more()
	}
	close(stop)
	group.Wait()
	t.Logf("%d grants", grants.Load())
	c := client(t, at)
	queueOf(t, c, "x", 0)
	conn := connect(t, e.Addrs()...)
	for { // the drivers remove some nodes later
		names := nodes(t, conn, "/locker")
		if len(names) == 0 {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("left behind: %v", names)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestMemberHangs stops one member of three, with its port still open: a client
// that is connected to it, or tries it first, finds another one in time.
func TestMemberHangs(t *testing.T) {
	testbed.Nightly(t, "run it after a change to how the client chooses servers")
	t.Parallel()
	slot(t)
	e := testbed.ZookeeperEnsemble(t, testbed.Faults())
	at := e.URL() + "?session=" + session.String()
	ctx := ctxFor(t, 60*time.Second)
	member := e.Followers()[0]
	member.Pause()
	defer member.Resume()
	begun := time.Now()
	var group sync.WaitGroup
	for i := range 9 { // each begins with a member at random
		c := client(t, at)
		group.Go(func() {
			k, err := c.Acquire(ctx, fmt.Sprint("x", i))
			if err != nil {
				t.Errorf("client %d: %v, after %v", i, err, time.Since(begun).Round(time.Millisecond))
				return
			}
			if err := k.Release(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	t.Logf("all went through in %v", time.Since(begun).Round(time.Millisecond))
}

// TestHolderLeavesMemberThatHangs stops a member to which holders are connected:
// they renew their leases at another member before the leases end. With this session
// the members and the holders have some seconds more than they need.
func TestHolderLeavesMemberThatHangs(t *testing.T) {
	testbed.Nightly(t, "run it after a change to how the client leaves a server, or to the length of leases")
	t.Parallel()
	slot(t)
	const session = 20 * time.Second
	e := testbed.ZookeeperEnsemble(t, testbed.Faults(), testbed.Args("maxSessionTimeout=20000"))
	at := e.URL() + "?session=" + session.String()
	ctx := ctxFor(t, 60*time.Second)
	member := e.Followers()[0]
	connected := func() int { return mntr(t, member)["num_alive_connections"] }
	var locks []*locker.Lock
	for before := connected(); connected() < before+2; { // each begins with a member at random
		locks = append(locks, must[*locker.Lock](t)(client(t, at).Acquire(ctx, fmt.Sprint("x", len(locks)))))
	}
	member.Pause()
	defer member.Resume()
	time.Sleep(session) // much longer than a lease
	for i, k := range locks {
		if err := k.Err(); err != nil {
			t.Errorf("holder %d of %d: %v", i, len(locks), err)
		}
	}
	for _, k := range locks {
		if err := k.Release(ctx); err != nil {
			t.Error(err)
		}
	}
}
