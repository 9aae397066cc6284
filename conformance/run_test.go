package conformance_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/conformance/internal/mutant"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// inChild makes this test binary run one of the tests below, which fail, as the
// author of a driver would.
const inChild = "LOCKER_CONFORMANCE_CHILD"

// TestChildBroken runs only in a child process.
func TestChildBroken(t *testing.T) {
	if os.Getenv(inChild) == "" {
		return
	}
	bug := mutant.TokensPerProcess
	if os.Getenv(inChild) == "sound" {
		bug = mutant.None
	}
	s := mutant.New(bug)
	conformance.Run(t, conformance.Harness{
		Open:     func(context.Context) (driver.Driver, error) { return s.Open(), nil },
		Bubble:   os.Getenv(inChild) != "real",
		Complete: os.Getenv(inChild) == "complete",
	})
}

// TestChildNoStore has a harness that calls t.FailNow in Open, as harnesses do.
func TestChildNoStore(t *testing.T) {
	if os.Getenv(inChild) == "" {
		return
	}
	conformance.Run(t, conformance.Harness{
		Open: func(context.Context) (driver.Driver, error) {
			t.Errorf("no store here")
			t.FailNow()
			return nil, nil
		},
	})
}

// deaf is a driver whose waits ignore their contexts.
type deaf struct{ *memory.Driver }

func (d deaf) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return d.Driver.Acquire(context.WithoutCancel(ctx), r)
}

func deafHarness() conformance.Harness {
	space := memory.New()
	return conformance.Harness{
		Open:   func(context.Context) (driver.Driver, error) { return deaf{space.Join()}, nil },
		Bubble: true,
	}
}

// TestChildDeaf runs only in a child process.
func TestChildDeaf(t *testing.T) {
	if os.Getenv(inChild) != "" {
		conformance.Run(t, deafHarness())
	}
}

// A driver with a method that does not return is told which, and no case waits for it.
func TestRunOfADeafDriver(t *testing.T) {
	out := child(t, "deaf", "-test.run=^TestChildDeaf$", "-test.v")
	wants(t, out, "conformance: Acquire that waits has not returned 20s after its context ended (D16): no case is run")
	if strings.Contains(out, "=== RUN   TestChildDeaf/") {
		t.Errorf("a case was run:\n%s", out)
	}
}

// child runs a test in another process and returns its output.
func child(t *testing.T, how string, args ...string) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), exe, append(args, "-test.timeout=60s")...)
	cmd.Env = append(os.Environ(), inChild+"="+how)
	out, err := cmd.CombinedOutput()
	if sound := how == "sound"; (err == nil) != sound {
		t.Fatalf("the suite ends with error %v on a driver that is %s:\n%s", err, how, out)
	}
	return string(out)
}

func wants(t *testing.T, out string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(out, text) {
			t.Errorf("want %q in:\n%s", text, out)
		}
	}
}

func TestRunReports(t *testing.T) {
	out := child(t, "bubble", "-test.run=^TestChildBroken$", "-test.v")
	wants(t, out,
		"--- FAIL: TestChildBroken/fencing/after-reconnect",
		"--- PASS: TestChildBroken/inspect/empty",
		"D3, C6: a process that begins anew gets greater tokens",
		"failed: token 1 was granted to a new process, after token 2",
		"--- SKIP: TestChildBroken/leaks/keys",
		"not run: the harness has no Keys (D18, C8: after all is released",
		" failed; not fully tested: D8, D10, D18: give Keys; D6, D7, D8,",
		": give OpenLink; ", ", D19: give Server",
	)
}

func TestRunComplete(t *testing.T) {
	out := child(t, "complete", "-test.run=^TestChildBroken$")
	wants(t, out, "--- FAIL: TestChildBroken/leaks/keys", "not run: the harness has no Keys", "asks for a complete proof")
}

// Without -v a run that passes still says what is not tested.
func TestRunSaysWhatIsNotPassed(t *testing.T) {
	out := child(t, "sound", "-test.run=^TestChildBroken$")
	wants(t, out, "TestChildBroken: ", " cases passed; not fully tested: ", "D18: give Keys; ", ": give OpenLink; ", ": give Server")
}

func TestRunObeysFilter(t *testing.T) {
	out := child(t, "real", "-test.run=^TestChildBroken$/^fencing$/^after-reconnect$", "-test.v")
	wants(t, out, "--- FAIL: TestChildBroken/fencing/after-reconnect")
	if strings.Contains(out, "inspect/empty (") {
		t.Errorf("a case ran that was not asked for:\n%s", out)
	}
}

func TestRunOutlivesFailNow(t *testing.T) {
	out := child(t, "real", "-test.run=^TestChildNoStore$", "-test.v")
	wants(t, out, "no store here", "--- FAIL: TestChildNoStore/exclusion/mutex", "--- FAIL: TestChildNoStore/leaks/goroutines")
}
