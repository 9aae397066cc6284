package sqltest

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A Bed is a store with the tables of a test.
type Bed struct {
	Open        func(dial Dial) (d driver.Driver, shut func(), err error) // a process
	IsStatement func(packet []byte) bool                                  // of a client
	Left        func() (rows int, err error)                              // sweeps, and counts what tickets and processes have left
}

// FaultAtEachStatement runs each scenario once for each statement that a process sends in it and each fault that the
// statement can meet, and checks what the driver promises. With part it runs one of so many.
func FaultAtEachStatement(t *testing.T, b Bed, part, atOnce int) {
	t.Helper()
	d, shut, err := b.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer shut()
	var whole, faulty []*play
	for _, s := range scenarios {
		for victim := range s.victims {
			whole = append(whole, &play{t: t, bed: b, observer: d, scenario: s, victim: victim})
		}
	}
	runAll(whole, atOnce)
	n := 0
	for _, p := range whole {
		sent, _, _ := p.wire.seen()
		for i := range sent * int(Silent) {
			if n++; n%part == 0 {
				p := &play{t: t, bed: b, observer: d, scenario: p.scenario, victim: p.victim}
				p.wire.at, p.wire.fault = 1+i/int(Silent), 1+Fault(i)%Silent
				faulty = append(faulty, p)
			}
		}
	}
	t.Logf("%d of %d cases", len(faulty), n)
	runAll(faulty, atOnce)
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(250 * time.Millisecond) { // what was left expires
		if rows, err := b.Left(); rows == 0 && err == nil {
			return
		} else if time.Now().After(end) {
			t.Errorf("%d rows are left (%v)", rows, err)
			return
		}
	}
}

// stalls records when the machine or the server was last too slow to judge, and when the last look at that began, until ctx ends.
func stalls(ctx context.Context, d driver.Driver, last, looked *atomic.Int64) {
	const pause, slow = 100 * time.Millisecond, 250 * time.Millisecond
	for began := time.Now(); ctx.Err() == nil; began = time.Now() {
		time.Sleep(pause)
		if _, err := d.Inspect(ctx, "stalls"); err != nil || time.Since(began) > pause+slow {
			last.Store(time.Now().UnixNano())
		}
		looked.Store(began.UnixNano())
	}
}

// unsafe reports whether no stall excuses a failure.
func unsafe(text string) bool {
	return slices.ContainsFunc([]string{"two holders", "the token", "that was broken is renewed"}, func(s string) bool { return strings.Contains(text, s) })
}

func runAll(ps []*play, atOnce int) {
	var stalled, looked atomic.Int64
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	defer group.Wait()
	defer cancel()
	group.Go(func() { stalls(ctx, ps[0].observer, &stalled, &looked) })
	plays(ps, atOnce, func(p *play, try int) (again bool) {
		began := time.Now()
		p.name = fmt.Sprintf("%s-%d-%s-%d-%d", p.scenario.name, p.victim, faultNames[p.wire.fault], p.wire.at, try)
		p.run()
		for failed := time.Now().UnixNano(); len(p.fails) > 0 && looked.Load() < failed; { // a stall may last
			time.Sleep(50 * time.Millisecond)
		}
		if len(p.fails) > 0 && try < 3 && stalled.Load() > began.UnixNano() && !slices.ContainsFunc(p.fails, unsafe) {
			p.t.Logf("run again, since the machine or the server stalled: %q", p.fails)
			p.fails, p.last, p.wire.sent = nil, 0, 0
			return true
		}
		for _, text := range p.fails {
			p.t.Error(text)
		}
		return false
	})
}

// plays runs plays until none wants to be run again.
func plays(ps []*play, atOnce int, run func(p *play, try int) (again bool)) {
	var group sync.WaitGroup
	defer group.Wait()
	running := make(chan struct{}, atOnce)
	for _, p := range ps {
		running <- struct{}{}
		group.Go(func() {
			defer func() { <-running }()
			for try := 0; run(p, try); try++ {
			}
		})
	}
}

const (
	callBound = 10 * time.Second
	busy      = time.Second     // a machine that runs many plays may be late by that
	liveness  = 4 * time.Second // the drivers' default
	fullTTL   = time.Minute
)

// A play is a scenario in which one statement of one process meets a fault. It has a lock of its own.
type play struct {
	t        *testing.T
	bed      Bed
	observer driver.Driver
	scenario scenario
	victim   int
	name     string
	wire     wire

	failing sync.Mutex
	fails   []string

	mu      sync.Mutex
	tickets int
	last    uint64             // token that was granted
	holders map[string]*ticket // by their IDs: whoever may believe to hold the lock
}

type process struct {
	*play
	driver.Driver
	hit bool // meets the fault
}

type ticket struct {
	p     *process
	r     driver.Request
	token uint64
	until time.Time // its lease is trusted
}

func (c *play) fail(format string, args ...any) {
	_, met, _ := c.wire.seen()
	c.failing.Lock()
	defer c.failing.Unlock()
	c.fails = append(c.fails, fmt.Sprintf("%s: %s\n\tstatement: %q", c.name, fmt.Sprintf(format, args...), met))
}

// stop ends the goroutine of the caller: its scenario cannot go on.
func (c *play) stop(format string, args ...any) {
	c.fail(format, args...)
	runtime.Goexit()
}

func (c *play) run() {
	c.holders, c.wire.isStatement = make(map[string]*ticket), c.bed.IsStatement
	var ps [2]*process
	for i := range ps {
		var dial Dial
		if i == c.victim {
			dial = c.wire.dial
		}
		d, shut, err := c.bed.Open(dial)
		if err != nil {
			c.fail("%v", err)
			return
		}
		defer shut()
		ps[i] = &process{play: c, Driver: d, hit: i == c.victim}
	}
	var group sync.WaitGroup
	group.Go(func() { c.scenario.play(ps[0], ps[1]) }) // stop may end it
	group.Wait()
	for _, p := range ps {
		p.close()
	}
	_, _, over := c.wire.seen()
	time.Sleep(time.Until(over))
	for _, t := range c.queue() {
		c.fail("in the end there is %+v", t)
	}
}

func (c *play) queue() []driver.Ticket {
	ctx, cancel := context.WithTimeout(context.Background(), callBound)
	defer cancel()
	q, err := c.observer.Inspect(ctx, c.name)
	if err != nil {
		c.fail("inspect: %v", err)
	}
	return q
}

// find looks for a ticket in the store.
func (c *play) find(id string) (t driver.Ticket, there bool) {
	for _, t := range c.queue() {
		if t.ID == id {
			return t, true
		}
	}
	return t, false
}

// call calls a method, and checks that it keeps to its bound, and that its error is one that it may return.
func (p *process) call(parent context.Context, what string, bound time.Duration, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(parent, bound)
	defer cancel()
	var over atomic.Int64
	defer context.AfterFunc(ctx, func() { over.Store(time.Now().UnixNano()) })()
	err := f(ctx)
	if at := over.Load(); at != 0 && time.Since(time.Unix(0, at)) > busy {
		p.fail("%s went on for %v after its context", what, time.Since(time.Unix(0, at)))
	}
	switch {
	case err == nil, parent.Err() != nil, isAnswer(err), errors.Is(err, driver.ErrClosed):
	case !p.hit:
		p.fail("%s by a process whose network is whole: %v", what, err)
	case !driver.IsUnavailable(err) && ctx.Err() == nil:
		p.fail("%s: %v, want ErrUnavailable", what, err)
	}
	return err
}

func isAnswer(err error) bool {
	return errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrLost)
}

// request makes a request for a ticket.
func (p *process) request(change func(*driver.Request)) driver.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tickets++
	r := driver.Request{Name: p.name, ID: fmt.Sprintf("%s-%d", p.name, p.tickets), TTL: fullTTL, Renewed: true, Wait: true}
	if change != nil {
		change(&r)
	}
	return r
}

// patience is how long it waits for the answer to a request for a ticket.
func (p *process) patience() time.Duration {
	if p.hit {
		return callBound / 3
	}
	return callBound
}

// ask asks for a ticket once, and removes what an error may have left.
func (p *process) ask(ctx context.Context, bound time.Duration, r driver.Request) (*ticket, error) {
	var g driver.Grant
	err := p.call(ctx, "acquire", bound, func(ctx context.Context) (err error) {
		g, err = p.Acquire(ctx, r)
		return err
	})
	switch {
	case err == nil:
		return p.granted(r, g), nil
	case isAnswer(err), errors.Is(err, driver.ErrNoTicket):
		p.absent(r.ID, err)
	case !errors.Is(err, driver.ErrClosed):
		_ = p.remove(r.Hold(0)) // it may be there or not
	}
	return nil, err
}

// absent checks that a ticket is gone, as an answer has said.
func (p *process) absent(id string, said error) {
	if t, there := p.find(id); there {
		p.fail("after the answer %v there is %+v", said, t)
	}
}

// granted checks a grant: nobody else has the lock, the token is greater than all before, and the store has the lease.
func (p *process) granted(r driver.Request, g driver.Grant) *ticket {
	k := &ticket{p: p, r: r, token: g.Token, until: g.Asked.Add(r.TTL)}
	if g.Claim > 0 {
		k.until = g.Asked.Add(g.Claim)
	}
	p.mu.Lock()
	for id, h := range p.holders {
		if time.Now().Before(h.until) && !(h.r.Shared && r.Shared) {
			p.fail("two holders: %s, and %s for %v", r.ID, id, time.Until(h.until))
		}
	}
	if g.Token <= p.last && !r.Shared {
		p.fail("the token %d after %d", g.Token, p.last)
	}
	p.last, p.holders[r.ID] = max(p.last, g.Token), k
	p.mu.Unlock()
	k.check()
	return k
}

// check checks that the store has the lease that its holder trusts.
func (k *ticket) check() {
	t, there := k.p.find(k.r.ID)
	left := time.Until(k.until)
	if left > 0 && (!there || !t.Held || t.Token != k.token || t.Remaining < left-10*time.Millisecond) {
		k.p.fail("%s is trusted for %v, and the store has %+v", k.r.ID, left, t)
	}
}

// isHeld reports whether a ticket was neither released nor broken, and until when its lease is trusted. With forget it is not any more.
func (k *ticket) isHeld(forget bool) (held, trusted bool) {
	k.p.mu.Lock()
	defer k.p.mu.Unlock()
	_, held = k.p.holders[k.r.ID]
	if forget {
		delete(k.p.holders, k.r.ID)
	}
	return held, held && time.Now().Before(k.until)
}

// take asks until it has the lock.
func (p *process) take(change func(*driver.Request)) *ticket {
	for range 4 {
		k, err := p.ask(context.Background(), p.patience(), p.request(change))
		if err == nil {
			return k
		}
		if isAnswer(err) {
			p.fail("acquire of a free lock: %v", err)
		}
	}
	p.stop("a free lock is not granted")
	return nil
}

// release releases as the core does, until the store has answered.
func (k *ticket) release() {
	_, trusted := k.isHeld(true)
	if err := k.p.remove(k.r.Hold(k.token)); trusted && errors.Is(err, driver.ErrLost) {
		k.p.fail("release of a ticket that is held: %v", err)
	}
}

// remove releases until the store has answered, and returns the answer to the first call.
func (p *process) remove(h driver.Hold) (first error) {
	for i, bound := 0, callBound/2; ; i, bound = i+1, time.Second {
		err := p.call(context.Background(), "release", bound, func(ctx context.Context) error { return p.Release(ctx, h) })
		if i == 0 {
			first = err
		}
		if err == nil || errors.Is(err, driver.ErrLost) {
			p.absent(h.ID, err)
			return first
		}
		if i == 12 {
			p.stop("the release is not confirmed: %v", err)
		}
		time.Sleep(250 * time.Millisecond)
	}
}

// renew renews a lease, as long as it is trusted.
func (k *ticket) renew() {
	for p := k.p; ; time.Sleep(50 * time.Millisecond) {
		asked := time.Now()
		held, trusted := k.isHeld(false)
		err := p.call(context.Background(), "renew", time.Second, func(ctx context.Context) error { return p.Renew(ctx, k.r.Hold(k.token), fullTTL) })
		switch {
		case err == nil && !held:
			p.fail("a ticket that was broken is renewed")
		case err == nil:
			p.mu.Lock()
			k.until = asked.Add(fullTTL)
			p.mu.Unlock()
			k.check()
		case errors.Is(err, driver.ErrLost) && trusted:
			p.fail("a lease is lost %v before its end", k.until.Sub(asked))
		case trusted:
			continue
		}
		return
	}
}

// A wait is for a ticket that is queued.
type wait struct {
	p     *process
	id    string
	leave func()
	ended chan *ticket // nil after an error
	err   error
}

// wait queues for a lock that others hold.
func (p *process) wait() *wait {
	for range 4 {
		ctx, leave := context.WithCancel(context.Background())
		joined, r := make(chan struct{}), p.request(nil)
		r.Joined = func() { close(joined) }
		w := &wait{p: p, id: r.ID, leave: leave, ended: make(chan *ticket, 1)}
		late := time.AfterFunc(p.patience(), leave)
		go func() {
			var k *ticket
			defer func() { w.ended <- k }() // also after stop
			k, w.err = p.ask(ctx, 3*callBound, r)
		}()
		select {
		case <-joined:
			if !late.Stop() { // the machine was slow
				<-w.ended
				continue
			}
			return w
		case k := <-w.ended:
			if k != nil {
				p.stop("a lock that others hold is granted")
			}
		}
	}
	p.stop("the ticket is not queued")
	return nil
}

// get returns the ticket that is granted within the bound.
func (w *wait) get() *ticket {
	began := time.Now()
	k := <-w.ended
	if k == nil {
		w.p.stop("the wait ends: %v", w.err)
	}
	if took := time.Since(began); took > grantSeen {
		w.p.fail("granted after %v", took)
	}
	return k
}

func (p *process) close() {
	began := time.Now()
	if err := p.Close(); err != nil {
		p.fail("close: %v", err)
	}
	if took := time.Since(began); took > 150*time.Millisecond+busy {
		p.fail("Close took %v", took)
	}
}
