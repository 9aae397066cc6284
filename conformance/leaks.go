package conformance

import (
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/lockerproject/locker"
)

var leaks = []Case{
	{
		Topic: "leaks", Name: "keys", Rules: []string{"D18", "§5.8"}, Needs: NeedKeys, alone: true,
		Explain: "after all is released the store holds nothing that grows with the number of names used",
		prove:   provesNoKeys,
	},
	{
		Topic: "leaks", Name: "goroutines", Rules: []string{"D17", "§5.8"}, alone: true,
		Explain: "after Close no goroutine of a driver is left",
		prove:   provesNoGoroutines,
	},
}

// use does everything to a name that could leave something behind.
func (e *env) use(a, b *locker.Client, name string) {
	k := e.take(a, name)
	e.refused(b, name)
	_, err := b.Acquire(e.within(patience), name, locker.WithWait(300*time.Millisecond))
	e.is(err, locker.ErrNotAcquired, "acquire what is held")
	p := e.queue(b, name, 2)
	e.release(k)
	e.release(p.granted(patience, "the holder released"))
	r1, r2 := e.take(a, name, locker.Shared()), e.take(b, name, locker.Limit(3))
	e.release(r1)
	e.release(r2)
	e.take(a, name, locker.WithTTL(50*time.Millisecond), locker.WithoutRenewal())
}

func provesNoKeys(e *env) {
	count := func() int {
		n, err := e.h.Keys(e.ctx)
		e.ok(err, "count keys")
		return n
	}
	a, b := e.client(), e.client()
	first := e.name("first")
	e.use(a, b, first) // what is kept for ever, whatever the number of names
	e.awaitLineWithin(e.bounds(shortTTL).Crash+slack, first, 0)
	settle := e.bounds(locker.DefaultTTL).Crash + e.bounds(locker.DefaultTTL).Liveness + slack
	e.settled(settle, count)
	before := count()
	for _, n := range []int{1, rounds(40)} {
		e.each(n, func(i int) { e.use(a, b, e.name(fmt.Sprint("key-", i))) })
	}
	e.eventually(settle, "waiting for the store to forget names", func() error {
		if n := count(); n > before {
			return fmt.Errorf("the store holds %d keys, and held %d before %d names were used and released", n, before, rounds(40))
		}
		return nil
	})
}

// settled waits until a count has not changed for a second, at most d.
func (e *env) settled(d time.Duration, count func() int) {
	deadline := time.Now().Add(d)
	for last, same := count(), 0; same < 4 && time.Now().Before(deadline); {
		e.sleep(250 * time.Millisecond)
		n := count()
		if n == last {
			same++
		} else {
			last, same = n, 0
		}
	}
}

func provesNoGoroutines(e *env) {
	cycle := func() {
		a, err := e.h.Open(e.ctx)
		e.ok(err, "open")
		b, err := e.h.Open(e.ctx)
		e.ok(err, "open")
		ca, cb := locker.New(a), locker.New(b)
		e.use(ca, cb, e.name("goroutines"))
		waits := e.name("waits")
		e.take(ca, waits)
		p := e.queue(cb, waits, 2)
		e.ok(cb.Close(), "close")
		e.is(p.ended(patience, "Close"), locker.ErrClosed, "a waiting Acquire")
		e.ok(ca.Close(), "close")
	}
	cycle()
	const times = 4
	before := e.goroutines(0)
	for range times {
		cycle()
	}
	// One or two may be on their way out, or be the runtime's; leaks come
	// once a driver.
	if after := e.goroutines(before); after >= before+times {
		buf := make([]byte, 1<<20)
		e.failf("%d goroutines before, and %d after %d drivers were opened, used and closed:\n%s",
			before, after, 2*times, buf[:runtime.Stack(buf, true)])
	}
}

// goroutines counts them when they have settled, or are no more than enough.
func (e *env) goroutines(enough int) int {
	e.eventually(patience, "counting goroutines", func() error {
		before := runtime.NumGoroutine()
		e.sleep(100 * time.Millisecond)
		if n := runtime.NumGoroutine(); n > max(before, enough) {
			return errors.New("their number grows")
		}
		return nil
	})
	return runtime.NumGoroutine()
}
