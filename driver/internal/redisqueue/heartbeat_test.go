package redisqueue

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// nodes answer heartbeats as a test wants, and note when these come.
type nodes struct {
	h Heartbeats

	mu     sync.Mutex
	start  time.Time
	came   [][]time.Duration                // of each node
	asked  []int                            // tickets in the last heartbeat
	answer []func(tickets int) (any, error) // nil: the node is silent
	states []string
}

// newNodes must be called in a bubble.
func newNodes(n int) *nodes {
	f := &nodes{start: time.Now(), came: make([][]time.Duration, n), answer: make([]func(int) (any, error), n)}
	f.h = Heartbeats{Nodes: n, Quorum: n/2 + 1}
	f.h.Ask = func(node int, _ string, tickets []string, answer func(any, error)) {
		f.mu.Lock()
		f.came[node] = append(f.came[node], time.Since(f.start))
		f.asked = append(f.asked, len(tickets))
		form := f.answer[node]
		f.mu.Unlock()
		if form != nil {
			answer(form(len(tickets)))
		}
	}
	f.h.State = func(node int, ticket string, state int64, lapsed bool) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.states = append(f.states, fmt.Sprint(node, ticket, state, lapsed))
	}
	for i := range f.answer {
		f.answer[i] = answers(-1, 0, IsWaiting)
	}
	return f
}

// answers makes a node answer when the queue may move, the flags, and the state of each
// ticket.
func answers(after, flags int64, state int64) func(int) (any, error) {
	return func(tickets int) (any, error) {
		reply := []any{after, flags}
		for range tickets {
			reply = append(reply, state)
		}
		return reply, nil
	}
}

func (f *nodes) wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// since returns the times of a node's heartbeats, and forgets them.
func (f *nodes) since(node int) []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	came := f.came[node]
	f.came[node], f.start = nil, time.Now()
	return came
}

func (f *nodes) set(node int, answer func(int) (any, error)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer[node] = answer
}

// last is how many tickets the last heartbeat has asked for.
func (f *nodes) last() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.asked[len(f.asked)-1]
}

const ms = time.Millisecond

func TestHeartbeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newNodes(1)
		defer f.h.Close()
		f.h.Enter("a", "x1", time.Now())
		f.wait(3500 * ms)
		if got := f.since(0); !slices.Equal(got, []time.Duration{1000 * ms, 2000 * ms, 3000 * ms}) {
			t.Errorf("heartbeats at %v, want one a second", got)
		}
		for i := range 100 {
			f.h.Enter("a", fmt.Sprint("x", 100+i), time.Now())
		}
		f.wait(time.Second)
		if f.last() != sampleSize {
			t.Errorf("asked after %d tickets, want some", f.last())
		}
		f.h.Recheck()
		f.wait(10 * ms)
		if f.last() != 101 {
			t.Errorf("asked after %d tickets, want all", f.last())
		}
		for i := range 100 {
			f.h.Leave("a", fmt.Sprint("x", 100+i))
		}
		f.h.Leave("a", "x1")
		f.since(0)
		f.wait(3 * time.Second)
		if got := f.since(0); got != nil {
			t.Errorf("heartbeats for nobody: %v", got)
		}
		if len(f.h.names) != 0 {
			t.Errorf("%d names are kept for nobody", len(f.h.names))
		}
	})
}

// A heartbeat is sent when a lease ends, and again and again while another library holds.
func TestHeartbeatsLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newNodes(1)
		defer f.h.Close()
		f.h.Enter("a", "x1", time.Now(), Outlook{After: 300 * ms, Poll: true})
		f.wait(900 * ms)
		if got := f.since(0); !slices.Equal(got, []time.Duration{301 * ms}) {
			t.Errorf("heartbeats at %v, want one when the lease ends", got)
		}
		f.set(0, answers(60_000, 3, IsWaiting))
		f.h.Poll("a")
		f.wait(1000 * ms)
		got := f.since(0)
		if len(got) < 7 || len(got) > 14 || got[1]-got[0] > 6*ms || got[len(got)-1]-got[len(got)-2] > 200*ms {
			t.Errorf("heartbeats at %v, want them after 5 to 200 ms", got)
		}
	})
}

// A node that fails is asked again soon, and one that is silent is left out.
func TestHeartbeatsOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newNodes(3)
		defer f.h.Close()
		f.h.Enter("a", "x1", time.Now())
		down := errors.New("down")
		f.set(1, func(int) (any, error) { return nil, down })
		f.set(2, nil)
		f.wait(1500 * ms)
		if n0, n1, n2 := len(f.since(0)), len(f.since(1)), len(f.since(2)); n0 < 3 || n1 < 3 || n2 != 1 {
			t.Errorf("%d, %d and %d heartbeats; want them again soon, and one for who is silent", n0, n1, n2)
		}
		f.wait(500 * ms)
		if errs := f.h.Errs("a"); errs[0] != nil || !errors.Is(errs[1], down) || !errors.Is(errs[2], errNoAnswer) {
			t.Errorf("the nodes have failed with %v", errs)
		}
	})
}

// A node that has not answered yet when another heartbeat is due early is not silent: it has a second.
func TestHeartbeatsFarAndEarly(t *testing.T) {
	early := map[string]func(h *Heartbeats){
		"poll":    func(h *Heartbeats) { h.Poll("a") },
		"recheck": func(h *Heartbeats) { h.Recheck() },
		"ticket":  func(h *Heartbeats) { h.Enter("a", "x2", time.Now(), Outlook{After: 0, Poll: true, Foreign: true}) },
	}
	for how, send := range early {
		synctest.Test(t, func(t *testing.T) {
			f := newNodes(1)
			defer f.h.Close()
			ask := f.h.Ask
			f.h.Ask = func(node int, name string, tickets []string, answer func(any, error)) {
				time.AfterFunc(80*ms, func() { ask(node, name, tickets, answer) })
			}
			f.h.Enter("a", "x1", time.Now())
			f.wait(1010 * ms) // a heartbeat is under way
			send(&f.h)
			f.wait(50 * ms)
			if err := f.h.Errs("a")[0]; err != nil {
				t.Errorf("%s: a node that answers within 80 ms has failed with %v", how, err)
			}
		})
	}
}

// A ticket that is queued is an answer: what heartbeats met before is over. A node that is away still is so at the next one.
func TestQueuedIsAnAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newNodes(1)
		defer f.h.Close()
		down := errors.New("down")
		f.h.Enter("a", "x1", time.Now())
		f.set(0, func(int) (any, error) { return nil, down })
		f.wait(1050 * ms)
		f.h.Enter("a", "x2", time.Now())
		if err := f.h.Errs("a")[0]; err != nil {
			t.Errorf("after the answer: %v", err)
		}
		f.wait(retryAfter)
		if err := f.h.Errs("a")[0]; !errors.Is(err, down) {
			t.Errorf("at the next heartbeat: %v", err)
		}
	})
}

// A heartbeat that has failed, and asked for all tickets of a process, is repeated for all: also of those that were few then.
func TestFailedHeartbeatForAll(t *testing.T) {
	for _, then := range []int{100, 10} {
		synctest.Test(t, func(t *testing.T) {
			f := newNodes(1)
			defer f.h.Close()
			enter := func(from, to int) {
				for i := from; i < to; i++ {
					f.h.Enter("a", fmt.Sprint("x", i), time.Now())
				}
			}
			enter(0, then)
			f.set(0, func(int) (any, error) { return nil, errors.New("the connection was reset") })
			f.h.Recheck()
			f.wait(10 * ms)
			enter(then, 120)
			f.set(0, answers(-1, 0, IsWaiting))
			f.wait(retryAfter)
			if f.last() != 120 {
				t.Errorf("%d tickets, then 120: asked after %d, want all", then, f.last())
			}
			f.wait(time.Second)
			if f.last() != sampleSize {
				t.Errorf("%d tickets, then 120: asked after %d, want some", then, f.last())
			}
		})
	}
}

// If a majority has not answered for too long, each ticket is reported as lapsed, and all
// of them are asked for at once.
func TestHeartbeatsLapse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newNodes(3)
		defer f.h.Close()
		for i := range 100 {
			f.h.Enter("a", fmt.Sprint("x", i), time.Now())
		}
		f.wait(1500 * ms)
		f.mu.Lock()
		f.answer[0], f.answer[1], f.asked, f.states = nil, nil, nil, nil
		f.mu.Unlock()
		f.wait(5 * time.Second)
		f.mu.Lock()
		defer f.mu.Unlock()
		if !slices.Contains(f.asked, 100) {
			t.Errorf("asked after %v tickets, want all once", f.asked)
		}
		lapsed := 0
		for _, state := range f.states {
			if strings.HasPrefix(state, "2x") && strings.HasSuffix(state, "true") {
				lapsed++
			}
		}
		if lapsed < 100 || strings.HasSuffix(f.states[0], "true") {
			t.Errorf("of %d answers %d say that tickets may be gone; want those after three seconds", len(f.states), lapsed)
		}
	})
}

// A node that answers each heartbeat, though after the next one is due, has not failed.
func TestHeartbeatsDeafAndFar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newNodes(1)
		defer f.h.Close()
		f.h.Unnotified = func() bool { return true }
		ask := f.h.Ask
		f.h.Ask = func(node int, name string, tickets []string, answer func(any, error)) {
			time.AfterFunc(80*ms, func() { ask(node, name, tickets, answer) })
		}
		f.h.Enter("a", "x1", time.Now())
		for range 100 {
			f.wait(10 * ms)
			if err := f.h.Errs("a")[0]; err != nil {
				t.Fatal(err)
			}
		}
	})
}

// The answer to a heartbeat says nothing of a ticket that has left meanwhile, and that was
// requested again.
func TestHeartbeatsOfAnEarlierRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, others := range []bool{false, true} {
			f := newNodes(1)
			told := func() bool {
				f.mu.Lock()
				defer f.mu.Unlock()
				return slices.Contains(f.states, fmt.Sprint(0, "x1", int64(IsGone), false))
			}
			f.set(0, answers(-1, 0, IsGone))
			ask := f.h.Ask
			f.h.Ask = func(node int, name string, tickets []string, answer func(any, error)) {
				time.AfterFunc(100*ms, func() { ask(node, name, tickets, answer) })
			}
			f.h.Enter("a", "x1", time.Now())
			if others {
				f.h.Enter("a", "x2", time.Now())
			}
			f.wait(1050 * ms) // a heartbeat is under way
			f.h.Leave("a", "x1")
			f.h.Enter("a", "x1", time.Now())
			f.wait(100 * ms)
			if told() {
				t.Errorf("others wait: %t: the new request is told of the earlier one", others)
			}
			f.wait(2 * time.Second)
			if !told() {
				t.Errorf("others wait: %t: the new request is told of nothing", others)
			}
			f.h.Close()
			f.wait(time.Second)
		}
	})
}
