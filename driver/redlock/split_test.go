package redlock

import (
	"errors"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A try is refused by a ticket that is on a majority. If each node but one has another one, as when several tries at once reach
// another node first each, it asks again: else none of them would get what is free.
func TestBlockedOnEachNodeByAnother(t *testing.T) {
	t.Parallel()
	x := newTrio(t, patient)
	exclusive, reader := driver.Request{}, driver.Request{Shared: true}
	for name, c := range map[string]struct {
		holders, try driver.Request
		ids          []string // on the second and the third node
		want         outcome
	}{
		"exclusive ones":                     {exclusive, exclusive, []string{"a", "b"}, split},
		"an exclusive one":                   {exclusive, exclusive, []string{"a", "a"}, notNow},
		"exclusive ones, before a reader":    {exclusive, reader, []string{"a", "b"}, split},
		"an exclusive one, before a reader":  {exclusive, reader, []string{"a", "a"}, notNow},
		"exclusive ones, before a permit":    {exclusive, driver.Request{Shared: true, Limit: 2}, []string{"a", "b"}, split},
		"an exclusive one, before a permit":  {exclusive, driver.Request{Shared: true, Limit: 2}, []string{"a", "a"}, notNow},
		"permits, before the only one":       {reader, driver.Request{Shared: true, Limit: 1}, []string{"a", "b"}, split},
		"a permit, before the only one":      {reader, driver.Request{Shared: true, Limit: 1}, []string{"a", "a"}, notNow},
		"readers, before an exclusive one":   {reader, exclusive, []string{"a", "b"}, split},
		"a reader, before an exclusive one":  {reader, exclusive, []string{"a", "a"}, notNow},
		"another library's, on a third node": {exclusive, exclusive, []string{"", "b"}, notNow},
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range x.direct {
				c.FlushAll(t.Context())
			}
			for i, id := range c.ids {
				if id == "" {
					x.direct[1+i].Set(t.Context(), x.key(), "theirs", time.Minute)
					continue
				}
				r := c.holders
				r.Name, r.ID, r.TTL = "name", id, time.Minute
				tk := x.d.newTicket(r)
				x.send(1+i, x.d.acquireCall(tk, r.TTL, x.d.numbers.guess(), tk.attempts.Add(1), orLeave, guessed))
			}
			r := c.try
			r.Name, r.ID, r.TTL = "name", "try", time.Minute
			p, err := x.d.ask(t.Context(), x.d.newTicket(r), x.d.numbers.guess(), orLeave, guessed)
			if err != nil || p.outcome != c.want {
				t.Errorf("outcome %d, want %d; %v", p.outcome, c.want, err)
			}
		})
	}
}

// A try that cannot get a majority any more does not wait for a silent node before it asks again.
func TestSplitBesideASilentNode(t *testing.T) {
	t.Parallel()
	x := newTrio(t, patient)
	for i, id := range []string{"a", "b"} {
		tk := x.d.newTicket(driver.Request{Name: "name", ID: id, TTL: time.Minute})
		x.send(i, x.d.acquireCall(tk, time.Minute, x.d.numbers.guess(), tk.attempts.Add(1), orLeave, guessed))
	}
	x.members[2].Pause()
	asked := time.Now()
	_, err := x.d.Acquire(t.Context(), driver.Request{Name: "name", ID: "try", TTL: time.Minute})
	if took := time.Since(asked); !errors.Is(err, driver.ErrNotAcquired) || took > 9*time.Second {
		t.Errorf("after %v: %v", took, err)
	}
}

// A try waits for a slow node that can still make a majority for it.
func TestTryBesideASlowNode(t *testing.T) {
	t.Parallel()
	x := newTrio(t, patient)
	tk := x.d.newTicket(driver.Request{Name: "name", ID: "a", TTL: time.Minute})
	x.send(0, x.d.acquireCall(tk, time.Minute, x.d.numbers.guess(), tk.attempts.Add(1), orLeave, guessed))
	x.ways[2].Cut()
	tried := make(chan error, 1)
	go func() {
		_, err := x.d.Acquire(t.Context(), driver.Request{Name: "name", ID: "try", TTL: time.Minute})
		tried <- err
	}()
	select {
	case err := <-tried:
		t.Error("before the slow node has answered:", err)
	case <-time.After(time.Second): // for longer than it takes to ask again until it gives up
		x.ways[2].Heal()
		if err := <-tried; err != nil {
			t.Error(err)
		}
	}
}
