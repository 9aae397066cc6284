package conformance

import (
	"errors"
	"time"

	"github.com/lockerproject/locker"
)

// minHolds are the cases about minimum holds.
var minHolds = []Case{
	{
		Topic: "min-hold", Name: "released-early", Rules: []string{"D20", "C3"},
		Explain: "a lock that is released before its minimum hold has passed is not granted to others until then",
		prove:   provesMinHoldReleased,
	},
	{
		Topic: "min-hold", Name: "closed-early", Rules: []string{"D20", "D17", "C3"},
		Explain: "a lock whose Client is closed before its minimum hold has passed is not granted to others until then",
		prove:   provesMinHoldClosed,
	},
	{
		Topic: "min-hold", Name: "crashed-early", Rules: []string{"D20", "D10", "C3"}, Needs: NeedLink,
		Explain: "a lock whose process ends before its minimum hold has passed is not granted to others until then",
		prove:   provesMinHoldCrashed,
	},
}

// minHold acquires name with a minimum hold that the store can give. It returns the
// lock, the minimum hold and its earliest end, or false if the store cannot keep one.
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

// notBefore fails if name is granted before the minimum hold ends, or long after.
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
