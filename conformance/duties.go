package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

// duties are the cases about what the core does for every store, and needs the
// driver for: removing what nobody wants any more, answers in time, outages told
// apart from contention, and minimum holds.
var duties = []Case{
	{
		Topic: "removal", Name: "unanswered-release", Rules: []string{"D13", "D14", "§5.8"}, Needs: NeedLink,
		Explain: "a lock whose release was not answered is free soon after the store is back, whatever shares its session",
		prove:   provesUnansweredRelease,
	},
	{
		Topic: "removal", Name: "given-up-wait", Rules: []string{"D9", "D13", "§5.8"}, Needs: NeedLink,
		Explain: "a ticket whose wait was given up in an outage is gone soon after the store is back",
		prove:   provesGivenUpWait,
	},
	{
		Topic: "limits", Name: "in-time", Rules: []string{"D16", "§5.9"}, Needs: NeedLink,
		Explain: "a caller gets an answer within 100 ms of its limit, though the store answers nothing",
		prove:   provesAnswersInTime,
	},
	{
		Topic: "limits", Name: "outage-is-no-contention", Rules: []string{"D7", "D14", "§5.9"}, Needs: NeedLink,
		Explain: "a limit that passes before the store has answered is ErrUnavailable, and not ErrNotAcquired",
		prove:   provesOutageIsNoContention,
	},
	{
		Topic: "limits", Name: "down-is-unavailable", Rules: []string{"D14", "§5.9"}, Needs: NeedServer, alone: true,
		Explain: "every call says of a store that is down that it is unavailable",
		prove:   provesDownIsUnavailable,
	},
	{
		Topic: "limits", Name: "ping", Rules: []string{"D14", "D16", "§5.9"}, Needs: NeedLink,
		Explain: "Ping says whether the store answers",
		prove:   provesPing,
	},
	{
		Topic: "hold", Name: "released-early", Rules: []string{"D20", "§5.3"},
		Explain: "a lock with a minimum hold is not passed on before, though it is released",
		prove:   provesMinHoldReleased,
	},
	{
		Topic: "hold", Name: "closed-early", Rules: []string{"D20", "D17", "§5.3"},
		Explain: "a lock with a minimum hold is not passed on before, though its Client is closed",
		prove:   provesMinHoldClosed,
	},
	{
		Topic: "hold", Name: "crashed-early", Rules: []string{"D20", "D10", "§5.3"}, Needs: NeedLink,
		Explain: "a lock with a minimum hold is not passed on before, though its process ends",
		prove:   provesMinHoldCrashed,
	},
	{
		Topic: "loss", Name: "cause", Rules: []string{"§5.7"},
		Explain: "the cause of a loss by Break is ErrLost on every store",
		prove:   provesCauseOfLoss,
	},
	{
		Topic: "reentry", Name: "owner-takes-over", Rules: []string{"D7", "§5.5"},
		Explain: "while one goroutine of an owner takes over from another, a try of the owner is answered at once",
		prove:   provesOwnerTakesOver,
	},
}

// removedWithin is how soon a ticket that nobody wants is gone after the store
// is back: the core asks for it once in less than 1.5 s while the store is away.
const removedWithin = 2 * time.Second

// hurried makes a client give up soon, so that a cut need not be long.
func hurried() []locker.ClientOption {
	return []locker.ClientOption{locker.WithReleaseTimeout(time.Second), locker.WithAnswerTimeout(2 * time.Second)}
}

// freeSoon fails unless the queue of name has n tickets soon after the store was
// back.
func (e *env) freeSoon(name string, n int) {
	begun := time.Now()
	e.eventually(slacks(1).plus(removedWithin, "how soon the core removes a ticket"), fmt.Sprintf("waiting for a ticket of %q to be removed", name), func() error {
		if q := e.queueOf(name); len(q) != n {
			return fmt.Errorf("%d tickets, want %d: %s", len(q), n, show(q))
		}
		return nil
	})
	e.logf("%q: free %v after the way was open again", name, time.Since(begun).Round(time.Millisecond))
}

// loser is a Link that can also lose what it carries, in both directions and for
// good, until Heal.
type loser interface{ Lose() }

// eachCut runs f with a way that holds everything back and, where the Link can,
// with one that loses everything.
func (e *env) eachCut(f func(cut func(Link))) {
	f(Link.Cut)
	f(func(l Link) {
		if lossy, ok := l.(loser); ok {
			lossy.Lose()
		} else {
			l.Cut()
		}
	})
}

func provesUnansweredRelease(e *env) {
	ttl := locker.WithTTL(max(15*time.Second, e.bounds(15*time.Second).MinTTL))
	e.eachCut(func(cut func(Link)) {
		first, second := e.name("first"), e.name("second")
		c, link := e.linked(hurried()...)
		a, b := e.take(c, first, ttl), e.take(c, second, ttl)
		cut(link)
		err := a.Release(e.ctx)
		e.is(err, locker.ErrUnavailable, "release while the store answers nothing")
		link.Heal()
		e.freeSoon(first, 0)
		e.holds(b, "beside a lock whose release was not answered")
		e.release(b)
		e.empty(first)
		e.empty(second)
	})
}

func provesGivenUpWait(e *env) {
	e.eachCut(func(cut func(Link)) {
		name, other := e.name("given-up"), e.name("other")
		c, link := e.linked(hurried()...)
		k := e.take(e.client(), name)
		b := e.take(c, other)
		w := e.queue(c, name, 2)
		cut(link)
		w.cancel(errChanged)
		e.is(w.ended(slacks(2), "it was cancelled"), errChanged, "a wait that was cancelled in a cut")
		e.sleep(slack + slack/5) // the first request to remove the ticket fails
		link.Heal()
		e.freeSoon(name, 1)
		e.holds(b, "beside a wait that was given up")
		e.release(b)
		e.release(k)
		e.empty(name)
	})
}

// overrun is by how much the fastest of some calls came back after its limit. One
// is enough to show that the driver does not wait for the store; the others may
// have met a loaded machine.
func (e *env) overrun(limit time.Duration, call func() error) (least time.Duration) {
	least = time.Hour
	for range 5 {
		begun := time.Now()
		if err := call(); err == nil {
			e.failf("acquired while the store answers nothing")
		}
		least = min(least, time.Since(begun)-limit)
		if least <= inTime {
			break
		}
	}
	return least
}

// inTime is the contract's.
const inTime = 100 * time.Millisecond

func provesAnswersInTime(e *env) {
	const limit = 500 * time.Millisecond
	name := e.name("in-time")
	c, link := e.linked(hurried()...)
	k := e.take(e.client(), name)
	e.refused(c, name)
	link.Cut()
	for what, call := range map[string]func() error{
		"an Acquire with a wait limit": func() error {
			_, err := c.Acquire(e.ctx, name, locker.WithWait(limit))
			return err
		},
		"an Acquire with a deadline": func() error {
			ctx, cancel := context.WithTimeout(e.ctx, limit)
			defer cancel()
			_, err := c.Acquire(ctx, name)
			return err
		},
		"a TryAcquire with a deadline": func() error {
			ctx, cancel := context.WithTimeout(e.ctx, limit)
			defer cancel()
			_, err := c.TryAcquire(ctx, name)
			return err
		},
		"an Inspect with a deadline": func() error {
			ctx, cancel := context.WithTimeout(e.ctx, limit)
			defer cancel()
			_, err := c.Inspect(ctx, name)
			return err
		},
	} {
		if over := e.overrun(limit, call); over > inTime {
			e.failf("%s of %v came back %v after it, at the best of five times; want at most %v (D16: the driver returns within 50 ms)", what, limit, over, inTime)
		}
	}
	link.Heal()
	e.worksAgain(c)
	e.awaitQueueWithin(e.outlives(), name, 1)
	e.release(k)
	e.empty(name)
}

func provesOutageIsNoContention(e *env) {
	name := e.name("outage")
	c, link := e.linked(hurried()...)
	e.release(e.take(c, name))
	link.Cut()
	_, err := c.Acquire(e.ctx, name, locker.WithWait(300*time.Millisecond))
	e.unavailable(err, "an Acquire whose wait limit passed before the store answered")
	ctx, cancel := context.WithTimeout(e.ctx, 300*time.Millisecond)
	defer cancel()
	_, err = c.Acquire(ctx, name)
	e.unavailable(err, "an Acquire whose context ended before the store answered")
	e.is(err, context.DeadlineExceeded, "an Acquire whose context ended before the store answered")
	_, err = c.TryAcquire(e.ctx, name)
	e.unavailable(err, "a TryAcquire that the store did not answer")
	link.Heal()
	e.worksAgain(c)
	e.freeSoon(name, 0)
	e.empty(name)
}

func (e *env) unavailable(err error, doing string) {
	e.is(err, locker.ErrUnavailable, "%s", doing)
	if errors.Is(err, locker.ErrNotAcquired) || errors.Is(err, locker.ErrLost) {
		e.failf("%s: got error %v, which says that the store has answered", doing, err)
	}
}

func provesDownIsUnavailable(e *env) {
	name := e.name("down")
	c := e.client(hurried()...)
	k := e.take(c, name, locker.WithTTL(max(15*time.Second, e.bounds(15*time.Second).MinTTL)))
	e.control()
	s := e.server()
	s.kill()
	_, err := c.Acquire(e.ctx, e.name("other"))
	e.unavailable(err, "acquire on a store that is down")
	_, err = c.TryAcquire(e.ctx, e.name("other"))
	e.unavailable(err, "try to acquire on a store that is down")
	_, err = c.Inspect(e.ctx, name)
	e.unavailable(err, "inspect on a store that is down")
	e.unavailable(c.Ping(e.ctx), "ping on a store that is down")
	e.unavailable(k.Extend(e.ctx, time.Minute), "extend on a store that is down")
	e.unavailable(k.Release(e.ctx), "release on a store that is down")
	s.start()
	e.worksAgain(c, e.control())
	e.awaitQueueWithin(e.outlives(), name, 0)
	e.empty(name)
}

func provesPing(e *env) {
	c, link := e.linked(hurried()...)
	e.ok(c.Ping(e.within(patience)), "ping")
	link.Cut()
	e.unavailable(c.Ping(e.ctx), "ping while the store answers nothing")
	link.Heal()
	e.eventually(patient, "pinging when the way is open again", func() error { return c.Ping(e.within(patience)) })
	e.release(e.takeNow(c, e.name("ping")))
}

// minHold takes name with a minimum hold that the store can give, and returns it and when
// it may end at the earliest; false: the store cannot keep one.
func (e *env) minHold(c *locker.Client, name string) (k *locker.Lock, d time.Duration, end time.Time, ok bool) {
	d = 3 * time.Second
	if most := e.bounds(d).MaxTTL; most > 0 {
		d = min(d, most)
	}
	asked := time.Now()
	k, err := c.Acquire(e.within(patience), name, locker.WithMinHold(d), locker.WithTTL(e.ttl()))
	if errors.Is(err, locker.ErrUnsupported) {
		if q := e.queueOf(name); len(q) != 0 {
			e.failf("refused with ErrUnsupported and left in the queue: %s", show(q))
		}
		return nil, 0, time.Time{}, false
	}
	e.ok(err, "acquire %q with a minimum hold of %v", name, d)
	return k, d, asked.Add(d), true
}

// notBefore fails when name is granted before the minimum hold ends, or long after.
func (e *env) notBefore(name string, d time.Duration, end time.Time, what string) {
	p := e.acquire(e.client(), name)
	next := p.granted(e.outlives().and(e.crash(d)).plus(d, "the minimum hold"), what)
	if early := end.Sub(p.at); early > 0 {
		e.failf("%q was granted %v before its minimum hold of %v ended, after %s (D20)", name, early, d, what)
	}
	e.release(next)
	e.empty(name)
}

func provesMinHoldReleased(e *env) {
	name := e.name("released")
	c := e.client()
	k, d, end, ok := e.minHold(c, name)
	if !ok {
		return
	}
	e.release(k)
	e.is(k.Err(), locker.ErrReleased, "the handle of a lock that was released within its minimum hold")
	e.refused(c, name)
	e.notBefore(name, d, end, "it was released")
}

func provesMinHoldClosed(e *env) {
	released, held := e.name("released"), e.name("held")
	c := e.client()
	k, d, end, ok := e.minHold(c, released)
	if !ok {
		return
	}
	e.release(k)
	_, _, end2, _ := e.minHold(c, held)
	e.ok(c.Close(), "close with locks within their minimum hold")
	e.each(2, func(i int) {
		if i == 0 {
			e.notBefore(released, d, end, "it was released and its Client closed")
		} else {
			e.notBefore(held, d, end2, "its Client was closed")
		}
	})
}

func provesMinHoldCrashed(e *env) {
	name := e.name("crashed")
	c, link := e.linked()
	_, d, end, ok := e.minHold(c, name)
	if !ok {
		return
	}
	link.Cut() // for good: the process is dead to the store
	e.notBefore(name, d, end, "its process was cut off")
}

func provesCauseOfLoss(e *env) {
	name := e.name("cause")
	var cause atomic.Pointer[error]
	c := e.client(locker.WithObserver(func(_ context.Context, ev locker.Event) {
		if ev.Kind == locker.EventLost {
			cause.Store(&ev.Err)
		}
	}))
	k := e.take(c, name, locker.WithTTL(max(3*time.Second, e.ttl())))
	err := e.control().Break(e.within(patience), name, k.Token())
	if errors.Is(err, locker.ErrUnsupported) {
		return
	}
	e.ok(err, "break %q", name)
	<-k.Done()
	e.eventually(patient, "waiting for the observer to be told", func() error {
		if cause.Load() == nil {
			return errNotTold
		}
		return nil
	})
	e.is(*cause.Load(), driver.ErrLost, "the cause of a loss by Break")
	e.empty(name)
}

var errNotTold = errors.New("the observer was not told of the loss")

func provesOwnerTakesOver(e *env) {
	name := e.name("owner")
	me := locker.WithOwner("me")
	c := e.client()
	k := e.take(e.client(), name)
	first := e.queue(c, name, 2, me)
	second := e.acquire(c, name, me)
	e.sleep(slack / 10)
	token := e.queueOf(name)[1].Token
	first.cancel(errChanged)
	_ = first.ended(slacks(2), "it was cancelled")
	e.eventually(patient, "waiting for the second to take over", func() error {
		if q := e.queueOf(name); len(q) != 2 || q[1].Token == token {
			return errors.New(show(q))
		}
		return nil
	})
	begun := time.Now()
	_, err := c.TryAcquire(e.within(patience), name, me)
	e.is(err, locker.ErrNotAcquired, "a try of the owner that waits")
	if took := time.Since(begun); took > 2*slack {
		e.failf("a try of the owner that waits took %v", took)
	}
	e.release(k)
	e.release(second.granted(patient, "the holder released"))
	e.empty(name)
}
