package conformance_test

import (
	"context"
	"slices"
	"strings"
	"testing"

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
	if r := results["leaks/keys"]; r.Proved() || !slices.Equal(r.Missing, []string{"Keys"}) {
		t.Errorf("a case that cannot run is reported as %+v", r)
	}
	if r := results["inspect/empty"]; r.Proved() || r.Except != "a reason" {
		t.Errorf("a case that does not apply is reported as %+v", r)
	}
	if r := results["fairness/hand-off-time"]; !r.Proved() {
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
			t.Errorf("%s is reported as disproved: %v", r.Case, r.Err)
		}
	}, "fencing/after-reconnect", "expiry/renewed-lease", "fairness/hand-off-time")
	if ran != 1 {
		t.Errorf("%d cases were reported, want the one that was over before the end", ran)
	}
}
