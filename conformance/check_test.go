package conformance_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/conformance/internal/mutant"
	"github.com/lockerproject/locker/driver"
)

// check runs some cases on a driver with a bug.
func check(ctx context.Context, bug mutant.Bug, report func(conformance.Result), names ...string) {
	s := mutant.New(bug)
	var cases []conformance.Case
	for _, c := range conformance.Cases() {
		if slices.Contains(names, c.String()) {
			cases = append(cases, c)
		}
	}
	conformance.Check(ctx, conformance.Harness{
		Open:   func(context.Context) (driver.Driver, error) { return s.Open(), nil },
		Except: map[string]string{"inspect/empty": "a reason"},
	}, cases, report)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	results := make(map[string]conformance.Result)
	names := []string{"fencing/after-reconnect", "inspect/empty", "leaks/keys", "fairness/hand-off-time"}
	check(t.Context(), mutant.TokensPerProcess, func(r conformance.Result) { results[r.Case.String()] = r }, names...)
	if r := results["fencing/after-reconnect"]; r.Err == nil || !strings.Contains(r.Err.Error(), "was granted to a new process") || r.Took <= 0 {
		t.Errorf("a case that fails is reported as %+v", r)
	}
	if r := results["leaks/keys"]; r.Passed() || !slices.Equal(r.Missing, []string{"Keys"}) {
		t.Errorf("a case that cannot run is reported as %+v", r)
	}
	if r := results["inspect/empty"]; r.Passed() || r.Except != "a reason" {
		t.Errorf("a case that does not apply is reported as %+v", r)
	}
	if r := results["fairness/hand-off-time"]; !r.Passed() {
		t.Errorf("a case that runs alone is reported as %+v", r)
	}
	if len(results) != len(names) {
		t.Errorf("%d results were reported, want %d: %v", len(results), len(names), results)
	}
}

// When the user interrupts Check, a case that was cut short is not reported as a
// fault of the driver.
func TestCheckEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	ran := 0
	check(ctx, mutant.None, func(r conformance.Result) {
		if len(r.Missing) > 0 || r.Except != "" {
			return
		}
		ran++
		cancel()
		if r.Err != nil {
			t.Errorf("%s is reported as failed: %v", r.Case, r.Err)
		}
	}, "fencing/after-reconnect", "expiry/renewed-lease", "fairness/hand-off-time")
	if ran != 1 {
		t.Errorf("%d cases were reported, want the one that was over before the end", ran)
	}
}

// watched is a Server that is to be broken by one case at a time.
type watched struct {
	conformance.Server
	t      *testing.T
	broken atomic.Bool
	kills  atomic.Int64
}

func (w *watched) Kill() {
	if !w.broken.CompareAndSwap(false, true) {
		w.t.Error("two cases break one store at the same time")
	}
	w.kills.Add(1)
	w.Server.Kill()
}

func (w *watched) Start() {
	w.Server.Start()
	w.broken.Store(false)
}

// Cases that break the store do so on stores of their own, a few at a time, if the
// harness can start some.
func TestNewServer(t *testing.T) {
	t.Parallel()
	harness := func() (conformance.Harness, *watched) {
		s := mutant.New(mutant.None)
		w := &watched{Server: s, t: t}
		return conformance.Harness{
			Open:   func(context.Context) (driver.Driver, error) { return s.Open(), nil },
			Server: w, Keys: s.Keys,
		}, w
	}
	h, shared := harness()
	var mu sync.Mutex
	var own []*watched
	h.NewServer = func(context.Context) (conformance.Harness, error) {
		h, w := harness()
		mu.Lock()
		defer mu.Unlock()
		own = append(own, w)
		return h, nil
	}
	quick := []string{"outage/restart-while-held", "outage/restart-while-waiting", "fencing/after-restart", "errors/why-not-connected"}
	cases := slices.DeleteFunc(conformance.Cases(), func(c conformance.Case) bool { return !slices.Contains(quick, c.String()) })
	conformance.Check(t.Context(), h, cases, func(r conformance.Result) {
		if !r.Passed() {
			t.Errorf("%s: %v", r.Case, r.Err)
		}
	})
	if n := shared.kills.Load(); n > 0 {
		t.Errorf("the store that all cases share was killed %d times", n)
	}
	if len(own) != 3 {
		t.Errorf("%d stores were started, want 3", len(own))
	}
	for _, w := range own {
		if w.kills.Load() == 0 {
			t.Error("a store was started and no case used it")
		}
	}
}

// A store that cannot be started is what its case fails with.
func TestNewServerFails(t *testing.T) {
	t.Parallel()
	s := mutant.New(mutant.None)
	h := conformance.Harness{
		Open:   func(context.Context) (driver.Driver, error) { return s.Open(), nil },
		Server: s,
		NewServer: func(context.Context) (conformance.Harness, error) {
			return conformance.Harness{}, errors.New("no store left")
		},
	}
	cases := slices.DeleteFunc(conformance.Cases(), func(c conformance.Case) bool { return c.String() != "outage/stalled" })
	conformance.Check(t.Context(), h, cases, func(r conformance.Result) {
		if r.Err == nil || r.Err.Error() != "no store left" {
			t.Errorf("%s: %v", r.Case, r.Err)
		}
	})
}

// A case that finds out that the driver lacks what it is about is reported as one that does
// not apply.
func TestCheckOfADriverThatCannotShorten(t *testing.T) {
	s := mutant.New(mutant.None)
	h := conformance.Harness{Open: func(context.Context) (driver.Driver, error) { return struct{ driver.Driver }{s.Open()}, nil }}
	for _, c := range conformance.Cases() {
		if c.String() != "min-hold/shortened" {
			continue
		}
		conformance.Check(t.Context(), h, []conformance.Case{c}, func(r conformance.Result) {
			if r.Err != nil || !strings.Contains(r.Except, "Shortener") {
				t.Errorf("reported as %+v", r)
			}
		})
		return
	}
	t.Error("no such case")
}

// Of a driver with a method that does not return each case is reported as failed, with the name of the method.
func TestCheckOfADeafDriver(t *testing.T) {
	for method, harness := range map[string]func() conformance.Harness{
		"Acquire that waits": deafHarness,
		"Renew":              cutOffHarness,
	} {
		t.Run(method, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reported := 0
				begun := time.Now()
				conformance.Check(t.Context(), harness(), conformance.Cases(), func(r conformance.Result) {
					if len(r.Missing) > 0 {
						return
					}
					reported++
					if r.Err == nil || !strings.Contains(r.Err.Error(), method+" has not returned") {
						t.Errorf("%s: %v", r.Case, r.Err)
					}
				})
				if took := time.Since(begun); reported < 20 || took > 2*time.Minute {
					t.Errorf("%d cases were reported, within %v", reported, took)
				}
			})
		})
	}
}

// cutOffHarness is that of a driver that waits for the answer to a renewal, however long that takes.
func cutOffHarness() conformance.Harness {
	h := harnessOf(mutant.New(mutant.None))
	open := h.OpenLink
	h.OpenLink = func(ctx context.Context) (driver.Driver, conformance.Link, error) {
		d, l, err := open(ctx)
		return patientRenewal{d}, l, err
	}
	return h
}

type patientRenewal struct{ driver.Driver }

func (p patientRenewal) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return p.Driver.Renew(context.WithoutCancel(ctx), h, ttl)
}
