package sim

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// liar is a driver that breaks one rule. Each oracle has to notice its own.
type liar struct {
	*memory.Driver
	lie   string
	calls atomic.Uint64
	shown atomic.Pointer[[]driver.Ticket] // the last queue that had tickets
	lost  func(driver.Hold, error)
}

func (l *liar) NotifyLoss(f func(driver.Hold, error)) {
	l.lost = f
	l.Driver.NotifyLoss(f)
}

// often is true at one of n calls.
func (l *liar) often(n uint64) bool { return l.calls.Add(1)%n == 0 }

var errOdd = errors.New("odd")

func (l *liar) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	switch l.lie {
	case "grants twice":
		r.Shared = true
	case "counts no permits":
		r.Limit = 0
	case "refuses":
		if !r.Wait && l.often(3) {
			return driver.Grant{}, driver.ErrNotAcquired
		}
	case "is away":
		if l.often(5) {
			return driver.Grant{}, driver.Unavailable(errOdd)
		}
	case "fails":
		if l.often(5) {
			return driver.Grant{}, errOdd
		}
	case "forgets waiters":
		if l.often(5) {
			return driver.Grant{}, driver.ErrLost
		}
	case "has no queue":
		if r.Wait {
			return l.poll(ctx, r)
		}
	}
	g, err := l.Driver.Acquire(ctx, r)
	switch {
	case err != nil && l.lie == "hangs":
		time.Sleep(time.Second)
	case err != nil:
	case l.lie == "is slow" && r.Wait:
		time.Sleep(200 * time.Millisecond)
	case l.lie == "counts down":
		g.Token = 1<<40 - g.Token
	case l.lie == "counts twice":
		g.Token -= g.Token % 2
	case l.lie == "loses locks" && l.often(5):
		time.AfterFunc(time.Millisecond, func() {
			if l.Driver.Release(context.Background(), r.Hold(g.Token)) == nil {
				l.lost(r.Hold(g.Token), driver.ErrLost)
			}
		})
	}
	return g, err
}

// poll waits as drivers without a queue do.
func (l *liar) poll(ctx context.Context, r driver.Request) (driver.Grant, error) {
	queued := false
	for r.Wait = false; ; {
		g, err := l.Driver.Acquire(ctx, r)
		if !errors.Is(err, driver.ErrNotAcquired) {
			return g, err
		}
		if !queued && r.Joined != nil {
			queued = true
			r.Joined()
		}
		select {
		case <-ctx.Done():
			return g, context.Cause(ctx)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

func (l *liar) Release(ctx context.Context, h driver.Hold) error {
	if l.lie == "keeps tickets" && l.often(4) {
		_ = l.Renew(ctx, h, 1000*time.Hour)
		return nil
	}
	return l.Driver.Release(ctx, h)
}

func (l *liar) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	queue, err := l.Driver.Inspect(ctx, name)
	switch old := l.shown.Load(); {
	case l.lie == "shows nobody":
		queue = nil
	case l.lie == "shows what has gone" && old != nil:
		queue = *old
	case l.lie == "shows holders alone":
		for i := range queue {
			queue[i].Held, queue[i].Remaining = true, time.Second
		}
	}
	if len(queue) > 0 {
		l.shown.Store(&queue)
	}
	return queue, err
}

func (l *liar) Close() error {
	switch l.lie {
	case "closes late":
		time.Sleep(6 * time.Second)
	case "leaves a goroutine":
		go func() { <-make(chan struct{}) }()
	}
	return l.Driver.Close()
}

// Each oracle can fail.
func TestOracles(t *testing.T) {
	for lie, want := range map[string]string{
		"grants twice":        "two holders",
		"counts no permits":   "holders ahead of a permit",
		"refuses":             "nobody was in the way",
		"is away":             "the store was available all the time",
		"fails":               "an error that makes no sense",
		"forgets waiters":     "was lost without a reason",
		"has no queue":        "was overtaken",
		"hangs":               "came back",
		"is slow":             "though nobody was in the way",
		"counts down":         "a token does not grow",
		"counts twice":        "a token twice",
		"loses locks":         "was lost without a reason",
		"keeps tickets":       "was not free within",
		"shows nobody":        "lacks",
		"shows what has gone": "whose release was confirmed before",
		"shows holders alone": "which cannot be",
		"closes late":         "close took",
		"leaves a goroutine":  "goroutines are left",
	} {
		t.Run(lie, func(t *testing.T) {
			for s := uint64(1); s < 200; s++ {
				m := memory.New()
				lying = func() driver.Driver { return &liar{Driver: m.Join(), lie: lie} }
				out := run(t, draw(s, "memory"))
				lying = nil
				if slices.ContainsFunc(out.broken, func(v string) bool { return strings.Contains(v, want) }) {
					return
				}
			}
			t.Errorf("no run has shown %q", want)
		})
	}
}

// The store cannot answer in time for a short lease, nor for who waits for one that its owner has asked for.
func TestLeastTTL(t *testing.T) {
	w := &world{begun: time.Now()}
	o, p := newOracle(w), &process{w: w, name: "p0"}
	asks := func(owner string, ttl time.Duration, ended time.Time) *call {
		c := &call{p: p, s: &step{names: []string{"n0"}, ttl: ttl, owner: owner}, begun: w.begun.Add(time.Second), ended: ended, parts: map[string]*part{"n0": {}}}
		o.calls = append(o.calls, c)
		return c
	}
	asks("alice", time.Millisecond, time.Time{})
	asks("bob", 2*time.Millisecond, w.begun) // before the others begin
	asks("", 3*time.Millisecond, time.Time{})
	for owner, want := range map[string]time.Duration{"alice": time.Millisecond, "bob": time.Minute, "": time.Minute} {
		if got := o.leastTTL(asks(owner, time.Minute, time.Time{})); got != want {
			t.Errorf("owner %q: %v, want %v", owner, got, want)
		}
	}
}

// A node of Redlock has refused the number of a ticket until that has got another one, whatever comes late.
func TestBarred(t *testing.T) {
	n := &node{excuse: &redisExcuses{barred: make(map[string]int64)}}
	for i, step := range []struct {
		number        int64
		refused, want bool
	}{{7, false, false}, {7, true, true}, {7, false, true}, {8, false, false}, {9, true, true}, {8, false, true}, {8, true, true}, {10, false, false}} {
		n.bars(proposed{id: "1", number: step.number}, step.refused)
		if got := n.excuse.barred["1"] > 0; got != step.want || n.excuse.barred["2"] > 0 {
			t.Errorf("step %d: barred: %t", i, got)
		}
	}
}
