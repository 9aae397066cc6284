package sim

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
)

// A waiter's place is lost without a reason as long as nobody can take it for dead, and also if there
// was all the time that it needs to be kept, whatever faults there were.
func TestCouldKeep(t *testing.T) {
	for name, test := range map[string]struct {
		sessions time.Duration
		ttl      time.Duration
		queued   time.Duration // so long ago
		heard    time.Duration // so long after that its caller has heard of it
		fault    [2]time.Duration
		want     bool
	}{
		"too early":            {sessions: 2 * time.Second, ttl: 10 * time.Second, queued: 7 * time.Second, fault: [2]time.Duration{0, 7 * time.Second}, want: true},
		"in a long fault":      {sessions: 2 * time.Second, ttl: 10 * time.Second, queued: 11 * time.Second, fault: [2]time.Duration{1 * time.Second, 11 * time.Second}},
		"in a short fault":     {sessions: 2 * time.Second, ttl: 20 * time.Second, queued: 20 * time.Second, fault: [2]time.Duration{19 * time.Second, 20 * time.Second}, want: true},
		"a long session":       {sessions: 10 * time.Second, ttl: time.Second, queued: 7 * time.Second, fault: [2]time.Duration{0, 7 * time.Second}, want: true},
		"heartbeats":           {ttl: 10 * time.Second, queued: 20 * time.Second, fault: [2]time.Duration{19 * time.Second, 20 * time.Second}, want: true},
		"heartbeats that fail": {ttl: 10 * time.Second, queued: 20 * time.Second, fault: [2]time.Duration{18 * time.Second, 20 * time.Second}},
		"the first heartbeat":  {ttl: 10 * time.Second, queued: 2 * time.Second, fault: [2]time.Duration{0, 2 * time.Second}, want: true},
		"a late answer":        {sessions: 2 * time.Second, ttl: 2 * time.Second, queued: 6 * time.Second, heard: 5900 * time.Millisecond, fault: [2]time.Duration{0, 5900 * time.Millisecond}},
		"a late one of a ticket that others watch": {ttl: 3 * time.Second, queued: 4 * time.Second, heard: 3 * time.Second, fault: [2]time.Duration{0, 3 * time.Second}},
		"a fault long before the ticket":           {sessions: 2 * time.Second, ttl: 2 * time.Second, queued: 6 * time.Second, heard: 5900 * time.Millisecond, fault: [2]time.Duration{0, time.Second}, want: true},
		"a lease that is shorter":                  {ttl: 2 * time.Second, queued: 3 * time.Second, fault: [2]time.Duration{2 * time.Second, 3 * time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(*testing.T) {
				begun := time.Now()
				w := &world{begun: begun, watched: test.sessions == 0, sessions: test.sessions}
				w.faults = []interval{{from: begun.Add(test.fault[0]), to: begun.Add(test.fault[1]), kind: "cut", process: "p0"}}
				o := newOracle(w)
				p := &process{w: w, o: o, name: "p0", plan: &processPlan{}}
				c := &call{p: p, s: &step{ttl: test.ttl}, begun: begun}
				time.Sleep(test.queued)
				if got := o.couldKeep(c, &part{c: c, queued: begun.Add(test.heard)}); got != test.want {
					t.Errorf("couldKeep: %t, want %t", got, test.want)
				}
			})
		})
	}
}

// keeper is a server that has some tickets.
type keeper struct {
	model
	tickets []uint64
}

func (k *keeper) has(_ string, token uint64) bool { return slices.Contains(k.tickets, token) }

// A break that was done has removed the ticket, and one that has found none tells the truth.
func TestBrokeOne(t *testing.T) {
	for name, test := range map[string]struct {
		left   []uint64
		before bool
		err    error
		want   string
	}{
		"done":                 {before: true},
		"not done":             {left: []uint64{7}, before: true, want: "and it is there"},
		"none":                 {err: locker.ErrLost},
		"one that has come":    {left: []uint64{7}, err: locker.ErrLost},
		"one that was there":   {left: []uint64{7}, before: true, err: locker.ErrLost, want: "is said not to be there"},
		"the store is not":     {left: []uint64{7}, before: true, err: locker.ErrUnavailable},
		"another one is there": {left: []uint64{8}, before: true},
	} {
		t.Run(name, func(t *testing.T) {
			w := &world{begun: time.Now()}
			w.servers = []*server{{w: w, model: &keeper{tickets: test.left}}}
			o := newOracle(w)
			c := &call{p: &process{w: w, o: o}, t: &thread{name: "p0.0"}, s: &step{names: []string{"n0"}}}
			o.brokeOne(c, 7, test.before, test.err)
			if got := strings.Join(w.broken, "\n"); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}

// A process that sends many messages is in a loop, unless it takes its time.
func TestRates(t *testing.T) {
	for name, test := range map[string]struct {
		pause time.Duration
		polls bool
		want  int
	}{
		"a loop":            {pause: 5 * time.Millisecond, want: 1},
		"from time to time": {pause: 50 * time.Millisecond},
		"a store to poll":   {pause: time.Millisecond, polls: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(*testing.T) {
				w := &world{begun: time.Now(), sessions: time.Second}
				if test.polls {
					w.sessions = 0
				}
				w.busy.begin()
				for range 3 * mostRate {
					w.busy.count(w, "p0")
					time.Sleep(test.pause)
				}
				if len(w.broken) != test.want {
					t.Errorf("violations: %v, want %d", w.broken, test.want)
				}
			})
		})
	}
}

// A call that waits for nobody when a run ends before its time is found, and nothing that comes after that.
func TestCutOff(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		w := &world{begun: time.Now(), late: time.Second}
		o := newOracle(w)
		c := &call{
			p: &process{w: w, o: o, name: "p0", plan: &processPlan{}}, t: &thread{name: "p0.0"},
			s: &step{names: []string{"n0"}, ttl: time.Minute}, begun: time.Now(),
		}
		c.parts = map[string]*part{"n0": {c: c, name: "n0", queued: time.Now()}}
		o.calls = []*call{c}
		time.Sleep(2 * time.Second)
		o.cutOff()
		w.fail("after the end")
		if len(w.broken) != 1 || !strings.Contains(w.broken[0], "nobody was in the way") || !c.ended.IsZero() {
			t.Errorf("violations: %v; the call has ended at %v", w.broken, c.ended)
		}
	})
}

// A break excuses that a waiter is overtaken only if it began when the waiter had asked.
func TestOvertakenAfterABreak(t *testing.T) {
	for when, want := range map[string]int{"before": 1, "after": 0} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(*testing.T) {
				w := &world{begun: time.Now()}
				o := newOracle(w)
				p := &process{w: w, o: o, name: "p0", plan: &processPlan{}}
				if when == "before" {
					o.breaks("n0", 1)
				}
				for range 2 {
					time.Sleep(time.Second)
					c := &call{p: p, t: &thread{name: "p0.0"}, s: &step{names: []string{"n0"}, ttl: time.Minute, wait: -1}, ctx: context.Background(), begun: time.Now()}
					c.parts = map[string]*part{"n0": {c: c, name: "n0", queued: time.Now()}}
					o.calls = append(o.calls, c)
				}
				if when == "after" {
					o.breaks("n0", 1)
				}
				o.overtaken(o.calls[1].parts["n0"])
				if len(w.broken) != want {
					t.Errorf("violations: %v, want %d", w.broken, want)
				}
			})
		})
	}
}

// What becomes of several messages of a kind, one after the other.
func TestTrapOfSeveral(t *testing.T) {
	p := &path{w: &world{}, process: "p0"}
	p.w.traps = []*trap{{
		process: "p0", write: true, skip: 1, begin: func() {}, sprung: make(chan struct{}),
		once: &once{kind: "hold"}, more: []*once{{kind: "drop"}, {kind: "keep"}},
	}}
	var got []string
	for _, what := range []string{"PutItem a", "PutItem b", "BatchGetItem c", "PutItem d", "PutItem e", "PutItem f"} {
		if one := p.passes(what, false); one != nil {
			got = append(got, what+" "+one.kind)
		}
	}
	if want := []string{"PutItem b hold", "PutItem d drop", "PutItem e keep"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Messages are told apart by what they are for.
func TestKindOfMessage(t *testing.T) {
	for what, want := range map[string]string{
		"PutItem locker:q:1 {}": "PutItem :q:", "PutItem locker:h:1 {}": "PutItem :h:",
		"cas locker:q:1 0 60 5 7": "cas :q:", "range \"locker/n0#\"": "range",
		"txn put:locker/n0#x": "txn put:", "txn put:locker/ delete:locker/n0#x": "txn put: delete:",
		"GET /v1/kv/locker/~queue/n0/?index=7&wait=2s ":  "GET/v1/kv/locker index=",
		`PUT /v1/txn [{"KV":{"Verb":"lock","Key":"a"}}]`: `PUT/v1/txn "Verb":"lock"`,
		`PUT /v1/session/renew/1 `:                       "PUT/v1/session/renew",
	} {
		if got := kindOfMessage(what); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
}

// The row of a ticket whose process has expired is none: a late request that finds it has not brought it back.
func TestRowOfAnExpiredProcess(t *testing.T) {
	for alive, want := range map[time.Duration]int{-time.Second: 0, time.Second: 1} {
		w := &world{begun: time.Now(), names: make(map[string]string), departed: map[string]departed{"id": {name: "n0"}}}
		d := newDatabase(&server{w: w})
		d.tables.processes[7] = &pgProcess{alive: d.time() + alive.Microseconds()}
		d.tables.tickets["n0"] = []*pgTicket{{name: "n0", id: "id", process: 7}}
		d.call("acquire", []any{"n0", "id", int64(7), false, int64(math.MaxInt64), int64(1e6), true, "", "", int64(0)})
		if len(w.broken) != want {
			t.Errorf("the process lives for %v: violations: %v, want %d", alive, w.broken, want)
		}
	}
}
