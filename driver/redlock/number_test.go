package redlock

import (
	"context"
	"encoding"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestGuessesGrow(t *testing.T) {
	t.Parallel()
	g := newNumbers(3)
	last := g.guess()
	g.learn(1, time.Now(), time.Now().Add(-time.Hour).UnixMicro())
	for range 100 {
		n := g.guess()
		if n <= last {
			t.Fatalf("guessed %d after %d", n, last)
		}
		last = n
	}
	if floor := last + 1000; g.above(floor) <= floor || g.guess() <= floor {
		t.Error("a number is not above the floor that a node had given")
	}
}

func TestGuessFollowsTheFastestNode(t *testing.T) {
	t.Parallel()
	g := newNumbers(3)
	ahead := time.Now().Add(time.Hour)
	g.learn(0, time.Now(), time.Now().UnixMicro())
	g.learn(2, time.Now(), ahead.UnixMicro())
	if n := g.guess(); n < uint64(ahead.UnixMicro()) { //nolint:gosec // positive
		t.Errorf("guessed %d, a node's clock says %d", n, ahead.UnixMicro())
	}
	// One answer that took long does not make it jump.
	before := g.guess()
	g.learn(2, time.Now(), ahead.Add(800*time.Millisecond).UnixMicro())
	if n := g.guess(); n-before > 200_000 {
		t.Errorf("guessed %d after %d: one slow answer was believed", n, before)
	}
}

// oneNode asks one node for tickets, as the driver does. Its prefix is that of one test:
// names of one prefix share fences.
type oneNode struct {
	t *testing.T
	d *Driver
}

func newOneNode(t *testing.T) oneNode {
	c := redis.NewClient(&redis.Options{Addr: testbed.SharedRedis(t).Addr()})
	d := newDriver([]*redis.Client{c}, options{prefix: t.Name(), timeout: 10 * time.Second, drift: DefaultDrift})
	t.Cleanup(func() { _, _ = d.Close(), c.Close() })
	return oneNode{t, d}
}

func (o oneNode) ticket(name, id string) *ticket {
	return o.d.newTicket(driver.Request{Name: name, ID: id, TTL: time.Minute})
}

func (o oneNode) ask(tk *ticket, number uint64, mode, origin byte) answer {
	o.t.Helper()
	r := newRound(o.d, parseAcquire)
	o.check(r.ask(context.Background(), func(*node) *redisqueue.Call { return o.d.acquireCall(tk, tk.r.TTL, number, 1, mode, origin) }))
	r.mu.Lock()
	defer r.mu.Unlock()
	o.check(r.errs[0])
	return r.answers[0]
}

func (o oneNode) release(tk *ticket) {
	o.t.Helper()
	o.check(o.d.Release(context.Background(), tk.r.Hold(0)))
}

func (o oneNode) check(err error) {
	o.t.Helper()
	if err != nil {
		o.t.Fatal(err)
	}
}

// The rules of numbers on one node; see lua/redlock_acquire.lua.
func TestNumbersOnOneNode(t *testing.T) {
	t.Parallel()
	o := newOneNode(t)
	name := fmt.Sprintf("numbers-%d", time.Now().UnixNano())
	n := uint64(time.Now().Add(time.Minute).UnixMicro()) //nolint:gosec // positive
	a, b, c := o.ticket(name, "a"), o.ticket(name, "b"), o.ticket(name, "c")
	want := func(got answer, what int64, when string) answer {
		t.Helper()
		if got.what != what {
			t.Fatalf("%s: answer %d (%+v), want %d", when, got.what, got, what)
		}
		return got
	}
	want(o.ask(a, n, orWait, guessed), holds, "a free name")
	if got := want(o.ask(b, n, orWait, guessed), refused, "a guess that has held"); got.floor != n {
		t.Fatalf("floor %d, want %d", got.floor, n)
	}
	want(o.ask(b, n-1, orWait, numberAbove), refused, "a number below one that has held")
	want(o.ask(b, n, orWait, numberAbove), refused, "a number that has held")
	want(o.ask(b, n+10, orWait, guessed), queued, "a larger guess")
	want(o.ask(c, n+5, orWait, guessed), refused, "a guess below the last in the queue")
	want(o.ask(c, n+10, orWait, numberAbove), refused, "a number that another has")
	want(o.ask(c, n+5, orWait, numberAbove), queued, "a number above what a majority knew, late")
	o.release(a)
	want(o.ask(b, n+10, orWait, kept), queued, "the second in the queue")
	want(o.ask(c, n+5, orWait, kept), holds, "the first in the queue")
	if got := want(o.ask(c, n+99, orWait, guessed), known, "asked again"); got.floor != n+5 {
		t.Fatalf("it is known as %d, want %d", got.floor, n+5)
	}
	o.release(c)
	want(o.ask(b, n+10, justWait, kept), queued, "who does not want to hold yet")
	want(o.ask(b, n+10, orWait, kept), holds, "the only one in the queue")
	o.release(b)
	want(o.ask(a, n+10, orLeave, guessed), refused, "a guess that has held, after all have gone")
	want(o.ask(a, n+11, orLeave, guessed), holds, "a guess above")
	o.release(a)
}

// A ticket that gives back a minority lets the ticket ahead of it go first.
func TestYieldOnOneNode(t *testing.T) {
	t.Parallel()
	o := newOneNode(t)
	name := fmt.Sprintf("yield-%d", time.Now().UnixNano())
	n := uint64(time.Now().Add(time.Minute).UnixMicro()) //nolint:gosec // positive
	late, early := o.ticket(name, "late"), o.ticket(name, "early")
	if a := o.ask(late, n+9, orWait, numberAbove); a.what != holds {
		t.Fatalf("a free name: %+v", a)
	}
	if a := o.ask(early, n+20, orWait, numberAbove); a.what != queued || a.ready {
		t.Fatalf("behind one that holds: %+v", a)
	}
	w := &waiter{t: late, wake: make(chan struct{}, 1)}
	o.d.yieldOn(o.d.nodes[0], w, 0) // of an earlier attempt
	if queue, err := o.d.Inspect(context.Background(), name); err != nil || len(queue) != 2 || !queue[0].Held {
		t.Fatalf("after a yield of an earlier round the queue is %+v, %v", queue, err)
	}
	o.d.yieldOn(o.d.nodes[0], w, 1)
	if a := o.ask(early, n+20, orWait, kept); a.what != queued {
		t.Fatalf("behind one that waits: %+v", a)
	}
	if a := o.ask(late, n+9, orWait, kept); a.what != holds {
		t.Fatalf("the first in the queue: %+v", a)
	}
	o.release(late)
	o.release(early)
}

// What is given back of one attempt leaves what a later one was granted, whether or not others wait.
func TestGivenBackOnOneNode(t *testing.T) {
	t.Parallel()
	o := newOneNode(t)
	run := func(c *redisqueue.Call) any {
		t.Helper()
		answers, errs := make(chan any, 1), make(chan error, 1)
		o.d.nodes[0].send(c, func(v any, err error) { answers <- v; errs <- err })
		o.check(<-errs)
		return <-answers
	}
	for _, others := range []bool{false, true} {
		name := fmt.Sprintf("back-%v-%d", others, time.Now().UnixNano())
		n := uint64(time.Now().Add(time.Minute).UnixMicro()) //nolint:gosec // positive
		tk, waiter := o.ticket(name, "try"), o.ticket(name, "waiter")
		run(o.d.acquireCall(tk, time.Minute, n, 2, orLeave, guessed))
		if others {
			o.ask(waiter, n+1, orWait, guessed)
		}
		for i, last := range []int64{1, 2} { // the attempt before, and the one that holds
			if got := run(o.d.releaseCall(o.d.nodes[0], removal{h: tk.r.Hold(0), last: last})); got != int64(i) {
				t.Errorf("attempt %d was given back, others wait: %v; answer %v, want %d", last, others, got, i)
			}
		}
		if others {
			o.release(waiter)
		}
	}
}

// A request that comes after its ticket was released does nothing, if the release
// knew that it was still on its way.
func TestLateOnOneNode(t *testing.T) {
	t.Parallel()
	o := newOneNode(t)
	name := fmt.Sprintf("late-%d", time.Now().UnixNano())
	n := uint64(time.Now().Add(time.Minute).UnixMicro()) //nolint:gosec // positive
	tk := o.ticket(name, "late")
	// The request is sent, and its answer is lost.
	late := o.d.acquireCall(tk, tk.r.TTL, n, 1, orWait, guessed)
	if _, err := late.Ticket("late", false).(encoding.BinaryMarshaler).MarshalBinary(); err != nil {
		t.Fatal(err)
	}
	o.d.nodes[0].unanswered.Note(late, io.EOF)
	if err := o.d.Release(context.Background(), tk.r.Hold(0)); !errors.Is(err, driver.ErrLost) {
		t.Fatalf("release of what is not there: %v", err)
	}
	if a := o.ask(tk, n, orWait, guessed); a.what != released {
		t.Fatalf("a request that came late: %+v", a)
	}
	if a := o.ask(o.ticket(name, "other"), n, orLeave, guessed); a.what != holds {
		t.Fatalf("another ticket: %+v", a)
	}
	o.release(o.ticket(name, "other"))
}

// TestAskedAgain: a request that is repeated finds its ticket at once, however often that was
// proposed before.
func TestAskedAgain(t *testing.T) {
	t.Parallel()
	o := newOneNode(t)
	r := o.ticket(fmt.Sprintf("again-%d", time.Now().UnixNano()), "again").r
	first := o.d.newTicket(r)
	p, err := o.d.ask(t.Context(), first, o.d.numbers.guess(), orWait, guessed)
	if err != nil || p.outcome != granted {
		t.Fatal(p.outcome, err)
	}
	number := p.number
	for range 20 {
		if p, err = o.d.propose(t.Context(), first, number, orWait, kept); err != nil || p.outcome != granted {
			t.Fatal(p.outcome, err)
		}
	}
	again := o.d.newTicket(r)
	before := again.attempts.Load()
	p, err = o.d.ask(t.Context(), again, o.d.numbers.guess(), orWait, guessed)
	if n := again.attempts.Load() - before; err != nil || p.outcome != granted || p.number != number || n > 2 {
		t.Errorf("outcome %d, %v, number %d after %d proposals, want number %d after two", p.outcome, err, p.number, n, number)
	}
	o.release(again)
}

// TestTooSmallBesideSilentNodes: a number that is refused is followed by a larger one, also
// while a minority is silent.
func TestTooSmallBesideSilentNodes(t *testing.T) {
	nodes := testbed.RedisN(t, 5)
	var clients []*redis.Client
	for _, m := range nodes.Members {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: m.Addr()}))
	}
	d := newDriver(clients, options{prefix: t.Name(), timeout: 10 * time.Second, drift: DefaultDrift})
	defer func() {
		_ = d.Close()
		for _, c := range clients {
			_ = c.Close()
		}
	}()
	ask := func(id string) {
		tk := d.newTicket(driver.Request{Name: "small", ID: id, TTL: time.Minute, Wait: true})
		p, err := d.ask(t.Context(), tk, 1, orWait, guessed)
		if err != nil || p.outcome != granted {
			t.Fatal(p.outcome, err)
		}
		if err := d.Release(t.Context(), tk.r.Hold(p.number)); err != nil {
			t.Fatal(err)
		}
	}
	ask("first")
	for _, m := range []int{0, 4} {
		nodes.Members[m].Pause()
		defer nodes.Members[m].Resume()
	}
	if took := testbed.Elapsed(func() { ask("second") }); took > d.timeout/2 {
		t.Errorf("it took %v: it waited for silent nodes", took)
	}
}

// Tokens grow on a node that has lost its data: a number that was chosen before the loss is not taken after it, though the
// node has forgotten which larger number has held. Another choice is taken at once, and so is a ticket that waits.
func TestNumbersAfterALoss(t *testing.T) {
	t.Parallel()
	o := newOneNode(t)
	name := fmt.Sprintf("loss-%d", time.Now().UnixNano())
	n := uint64(time.Now().UnixMicro()) //nolint:gosec // positive
	early, late := o.ticket(name, "early"), o.ticket(name, "late")
	waits := o.ticket(name, "waits")
	lose := func() { o.check(o.d.nodes[0].client.Del(context.Background(), o.d.fences()).Err()) }
	lose()
	if a := o.ask(late, n, orWait, numberAbove); a.what != refused || a.floor <= n {
		t.Fatalf("a number from before the loss: %+v", a)
	} else if a := o.ask(late, a.floor+1, orWait, numberAbove); a.what != holds {
		t.Fatalf("a number above the floor that was answered: %+v", a)
	}
	o.release(late)
	lose()
	if a := o.ask(early, n+1, orWait, numberAbove); a.what != refused {
		t.Fatalf("a number from before the second loss: %+v", a)
	}
	if a := o.ask(waits, n+2, justWait, kept); a.what != queued {
		t.Fatalf("a ticket that a majority has: %+v", a)
	}
	o.release(waits)
}
