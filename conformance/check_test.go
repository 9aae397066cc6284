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
func check(ctx context.Context, bug mutant.Bug, tell func(conformance.Result), names ...string) {
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
	}, cases, tell)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	told := make(map[string]conformance.Result)
	names := []string{"fencing/after-reconnect", "inspect/empty", "leaks/keys", "fairness/hand-off-time"}
	check(t.Context(), mutant.TokensPerProcess, func(r conformance.Result) { told[r.Case.String()] = r }, names...)
	if r := told["fencing/after-reconnect"]; r.Err == nil || !strings.Contains(r.Err.Error(), "was granted to a new process") || r.Took <= 0 {
		t.Errorf("a case that fails is told as %+v", r)
	}
	if r := told["leaks/keys"]; r.Proved() || !slices.Equal(r.Missing, []string{"Keys"}) {
		t.Errorf("a case that cannot run is told as %+v", r)
	}
	if r := told["inspect/empty"]; r.Proved() || r.Except != "a reason" {
		t.Errorf("a case that does not apply is told as %+v", r)
	}
	if r := told["fairness/hand-off-time"]; !r.Proved() {
		t.Errorf("a case that runs alone is told as %+v", r)
	}
	if len(told) != len(names) {
		t.Errorf("told %d results, want %d: %v", len(told), len(names), told)
	}
}

// TestCheckEnds is about a user who interrupts it: what was cut short must not be
// taken for a fault of the driver.
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
			t.Errorf("%s is told to be disproved: %v", r.Case, r.Err)
		}
	}, "fencing/after-reconnect", "expiry/renewed-lease", "fairness/hand-off-time")
	if ran != 1 {
		t.Errorf("%d cases were told, want the one that was over before the end", ran)
	}
}
