package sim

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
)

// A ticket that nobody wants any more has to go as soon as its process can remove it.
func TestMustGo(t *testing.T) {
	for name, test := range map[string]struct {
		removed, fault time.Duration // after so long; 0: not
		want           int
	}{
		"removed":               {removed: removeTime - time.Millisecond},
		"left":                  {want: 1},
		"removed after a fault": {removed: 11 * time.Second, fault: 10 * time.Second},
		"left after a fault":    {fault: 10 * time.Second, want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(*testing.T) {
				w := &world{begun: time.Now(), exact: true, used: make(map[int64]bool), names: make(map[string]string)}
				b := &bank{waits: map[string]*bankWait{"id": {done: make(chan struct{})}}}
				w.servers = []*server{{w: w, model: b}}
				o := newOracle(w)
				if test.fault > 0 {
					w.fault("cut", "p0", time.Now().Add(test.fault))
				}
				c := &call{p: &process{w: w, o: o, name: "p0", plan: &processPlan{}}, t: &thread{name: "p0.0"}, s: &step{}}
				o.mustGo(&part{c: c, name: "n0", tickets: []string{"id", "another one"}}, removeTime)
				if test.removed > 0 {
					time.AfterFunc(test.removed, func() {
						b.mu.Lock()
						defer b.mu.Unlock()
						delete(b.waits, "id")
					})
				}
				time.Sleep(time.Minute)
				w.mu.Lock()
				defer w.mu.Unlock()
				if len(w.broken) != test.want {
					t.Errorf("violations: %v, want %d", w.broken, test.want)
				}
			})
		})
	}
}

// A fixed lease that re-enters another one has its own length.
func TestIsWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := locker.New(memory.New())
		defer client.Close()
		k, err := client.Acquire(t.Context(), "n0", locker.WithTTL(10*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		for ttl, want := range map[time.Duration]int{10 * time.Second: 0, 11 * time.Second: 1} {
			w := &world{begun: time.Now()}
			c := &call{t: &thread{name: "p0.0"}, s: &step{fixed: true, ttl: ttl}, begun: time.Now()}
			newOracle(w).isWhole(c, &hold{p: &process{w: w, name: "p0"}, name: "n0"}, k)
			if len(w.broken) != want {
				t.Errorf("a lease of %v: violations: %v, want %d", ttl, w.broken, want)
			}
		}
	})
}

// A ticket that was released within its minimum hold is removed when that is over, and later if a fault keeps its process from
// it, also if the release has come back after the minimum hold, since an observer was slow.
func TestGoneAfterTheMinimumHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{begun: time.Now()}
		o := newOracle(w)
		c := &call{p: &process{w: w, name: "p0"}, s: &step{ttl: 10 * time.Second, minHold: 30 * time.Millisecond}, begun: time.Now(), ended: time.Now()}
		time.Sleep(60 * time.Millisecond)
		w.fault("mute", "", time.Now().Add(time.Second))
		for after, later := range map[time.Duration]bool{10 * time.Millisecond: true, 40 * time.Millisecond: false} {
			gone := o.goneAfter(&part{c: c, releasing: w.begun.Add(after)}, nil)
			if gone.After(time.Now().Add(time.Second)) != later {
				t.Errorf("released after %v: gone %v after that was answered; want later than the fault: %t", after, time.Until(gone), later)
			}
		}
	})
}

// A minimum hold is that of who has asked for the lock, also if who has re-entered it returns first.
func TestMinimumHoldOfAReentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := locker.New(memory.New())
		defer client.Close()
		w := &world{begun: time.Now(), exact: true}
		p := &process{w: w, name: "p0", plan: &processPlan{}}
		o := newOracle(w)
		got := func(s *step, reentered bool) *part {
			k, err := client.Acquire(t.Context(), "n0", locker.WithOwner("twins"))
			if err != nil {
				t.Fatal(err)
			}
			c := &call{p: p, t: &thread{name: "p0.0"}, s: s, begun: time.Now(), lock: k}
			one := &part{c: c, name: "n0", reentered: reentered}
			c.parts = map[string]*part{"n0": one}
			o.mu.Lock()
			defer o.mu.Unlock()
			o.granted(c, one, k)
			return one
		}
		got(&step{shared: true, ttl: time.Minute}, true)
		if h := got(&step{shared: true, ttl: time.Minute, minHold: 5 * time.Second}, false).hold; h.minHold != 5*time.Second {
			t.Errorf("a minimum hold of %v, want 5s", h.minHold)
		}
		if h := got(&step{shared: true, ttl: time.Minute}, true).hold; h.minHold != 5*time.Second {
			t.Errorf("after another re-entry: a minimum hold of %v, want 5s", h.minHold)
		}
	})
}

// A ticket that is kept for its minimum hold may stay for longer if there is a fault before it is removed.
func TestFaultDuringTheMinimumHold(t *testing.T) {
	for _, faulty := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := &world{begun: time.Now(), used: make(map[int64]bool), sessions: time.Second}
			o := newOracle(w)
			p := &process{w: w, name: "p0", d: memory.New()}
			c := &call{p: p, s: &step{ttl: 10 * time.Second, minHold: 2 * time.Second}, begun: time.Now(), ended: time.Now()}
			one := &part{c: c, name: "n0", releasing: time.Now(), hold: &hold{}}
			o.mu.Lock()
			gone := o.goneAfter(one, nil)
			one.gone = gone
			o.goesLater(one)
			o.mu.Unlock()
			time.Sleep(time.Second)
			if faulty {
				w.fault("cut", "p0", time.Now().Add(time.Second))
			}
			time.Sleep(time.Minute)
			o.mu.Lock()
			defer o.mu.Unlock()
			if later := one.gone.After(gone); later != faulty || one.hold.gone.After(gone) != faulty {
				t.Errorf("with a fault: %v; the ticket may stay for longer: %v", faulty, later)
			}
		})
	}
}
