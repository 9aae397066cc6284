package command_test

import (
	"bytes"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
	"github.com/lockerproject/locker/internal/command"
	"github.com/lockerproject/locker/internal/commandtest"
	"github.com/lockerproject/locker/internal/testbed"
)

// caseLine is a line of --json: of a case or, at the end, of the run.
type caseLine struct {
	Case    string
	Rules   []string
	Explain string
	Result  string
	Seconds float64
	Error   string
	Lacks   []string
	Log     []string

	Cases, Passed, Failed, Skipped int
}

func TestConformance(t *testing.T) {
	onRedisAndEtcd(t, func(t *testing.T, url string) {
		const some = "^(fencing/after-reconnect|limits/in-time|leaks/keys|names/invalid)$"
		r := on(t, url, "conformance", "--case", some).Run()
		has(t, r, r.Out, "pass  fencing/after-reconnect (", "pass  limits/in-time (", "pass  names/invalid (",
			" passed; not run here: 1 that count what the store holds")
		if r.Code != 0 || r.ErrOut != "" {
			t.Error(r)
		}
		r = on(t, url, "conformance", "--json", "--case", "^(leaks/keys|names/invalid)$").Run()
		lines := decode[caseLine](t, r.Out)
		if r.Code != 0 || len(lines) != 3 {
			t.Fatal(r)
		}
		skipped, passed, end := lines[0], lines[1], lines[2]
		if skipped.Result != "skipped" || strings.Join(skipped.Lacks, " ") != "Keys" || passed.Result != "passed" || passed.Case != "names/invalid" ||
			len(passed.Rules) == 0 || passed.Explain == "" || end.Cases != 2 || end.Passed != 1 || end.Skipped != 1 || end.Failed != 0 {
			t.Error(r)
		}
	})
}

// The suite's names are not among those in use.
func TestConformanceIsApart(t *testing.T) {
	onRedisAndEtcd(t, func(t *testing.T, url string) {
		w := on(t, url, "watch", often, "--json").Start()
		hold(t, client(t, url), "in use")
		w.WaitOut("in use")
		if r := on(t, url, "conformance", "--case", "^names/distinct$").Run(); r.Code != 0 {
			t.Error(r)
		}
		w.Signal(os.Interrupt)
		for _, line := range decode[queueLine](t, w.Wait().Out) {
			if line.Name != "in use" {
				t.Errorf("the name %q is among those in use", line.Name)
			}
		}
	})
}

// repeating gives every grant the same token.
type repeating struct{ *memory.Driver }

func (r repeating) Acquire(ctx context.Context, q driver.Request) (driver.Grant, error) {
	g, err := r.Driver.Acquire(ctx, q)
	g.Token = 7
	return g, err
}

// TestConformanceFails is about a store that breaks a rule. No real one of the
// testbed does, so the program runs in this process, where there is one.
func TestConformanceFails(t *testing.T) {
	driver.Register("repeating", func(context.Context, *driver.URL) (driver.Driver, error) {
		return repeating{memory.Open("conformance-fails")}, nil
	})
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "FAIL  fencing/after-reconnect ("},
		{nil, "D3, C6: a process that begins anew gets greater tokens"},
		{nil, "\n1 of 2 cases passed, 1 failed: fencing/after-reconnect\n"},
		{[]string{"--json"}, `"result":"failed"`},
		{[]string{"--json"}, `{"cases":2,"passed":1,"failed":1,"skipped":0}`},
	} {
		var out, errOut bytes.Buffer
		code := command.Main(append([]string{"conformance", "--url", "repeating://", "--case", "^(fencing/after-reconnect|names/invalid)$"}, c.args...),
			command.Streams{In: strings.NewReader(""), Out: &out, Err: &errOut})
		if code != command.ExitFailure || !strings.Contains(out.String(), c.want) || errOut.Len() > 0 {
			t.Errorf("exit code %d, want %q in\n%s%s", code, c.want, &out, &errOut)
		}
	}
}

// TestConformanceEnds is about a user, or a pipe, that ends it.
func TestConformanceEnds(t *testing.T) {
	onRedisAndEtcd(t, func(t *testing.T, url string) {
		cmd := on(t, url, "conformance").Start()
		cmd.WaitOut("pass ")
		cmd.Signal(os.Interrupt)
		if r := cmd.Wait(); r.Code != 128+2 || r.ErrOut != "" || strings.Contains(r.Out, "FAIL") || strings.Contains(r.Out, "passed") {
			t.Error(r)
		}
		cmd = on(t, url, "conformance")
		nobodyReads(t, cmd)
		if r := cmd.Run(); r.Code != 128+13 || r.ErrOut != "" {
			t.Error(r)
		}
	})
}

func TestConformanceOnTerminal(t *testing.T) {
	t.Parallel()
	term := commandtest.NewTerminal(t)
	url := ownSpace(testbed.SharedRedis(t).URL())
	if r := term.Attach(on(t, url, "conformance", "--case", "^(names/invalid|inspect/empty)$")).Run(); r.Code != 0 {
		t.Error(r, term.Shown())
	}
	shown := term.WaitFor("2 of 2 cases passed")
	for _, want := range []string{"locker: 2 cases", "\x1b[32mpass\x1b[0m  names/invalid"} {
		if !strings.Contains(shown, want) {
			t.Errorf("want %q in %q", want, shown)
		}
	}
}

func TestConformanceWrongUse(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--case", "("}, {"--case", "no-such-case"}, {"x"}} {
		r := on(t, "redis://127.0.0.1:1", append([]string{"conformance"}, args...)...).Run()
		if r.Code != command.ExitUsage || r.Out != "" {
			t.Error(r)
		}
	}
	r := commandtest.Command(t, "conformance", "--list", "--case", "^names/").Run() // reaches no store
	has(t, r, r.Out, "names/invalid (", "names/any-string (")
}
