package command

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockerproject/locker/conformance"
)

// caseJSON is a case as --json prints it.
type caseJSON struct {
	Case    string   `json:"case"`  // topic/name
	Rules   []string `json:"rules"` // of go doc ./driver and ./conformance
	Explain string   `json:"explain"`
	Result  string   `json:"result,omitempty"` // passed, failed or skipped
	Seconds float64  `json:"seconds,omitempty"`
	Error   string   `json:"error,omitempty"` // how it failed
	Lacks   []string `json:"lacks,omitempty"` // what a case that was skipped needs
	Log     []string `json:"log,omitempty"`   // figures
}

// reportJSON is the last line of --json.
type reportJSON struct {
	Cases   int `json:"cases"`
	Passed  int `json:"passed"`
	Failed  int `json:"failed"`
	Skipped int `json:"skipped"`
}

func newConformance(a *app) *cobra.Command {
	pattern, list := "", false
	cmd := &cobra.Command{
		Use:   "conformance",
		Short: "Test that this store keeps the rules of locks",
		Long: `Run the public conformance suite on your own store: its version, its settings, and
the network in between. It takes some minutes. Exit code 1 means that a rule is
broken; each failure explains what that means for users.

The suite uses locks with strange and random names, under the prefix PREFIX-conformance,
for which the URL's user needs the same rights; on PostgreSQL, MySQL and SQLite they are
in the tables of the URL. Some are left to expire, within a minute. The load on the store
is small. Connections are cut by a proxy in this process if they are plain TCP to the
addresses in the URL. Cases that would kill the store, or count its keys, are skipped.`,
		Example: `  locker conformance
  locker conformance --case '^(fencing|expiry)/'
  locker conformance --list --json`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			cases, err := casesLike(pattern)
			if err != nil {
				return err
			}
			if list {
				a.listCases(cases)
				return nil
			}
			return a.conform(cmd.Context(), cases)
		},
	}
	cmd.Flags().StringVar(&pattern, "case", "", "run the cases whose topic/name matches this regular `EXPRESSION`")
	cmd.Flags().BoolVar(&list, "list", false, "list the cases, and run none")
	return cmd
}

// casesLike are the cases whose names match.
func casesLike(pattern string) ([]conformance.Case, error) {
	like, err := regexp.Compile(pattern)
	if err != nil {
		return nil, usage(fmt.Errorf("--case: %w", err))
	}
	cases := slices.DeleteFunc(conformance.Cases(), func(c conformance.Case) bool { return !like.MatchString(c.String()) })
	if len(cases) == 0 {
		return nil, exit(ExitUsage, fmt.Errorf("no case matches %q", pattern), "locker conformance --list")
	}
	return cases, nil
}

func (a *app) listCases(cases []conformance.Case) {
	for _, c := range cases {
		j := caseJSON{Case: c.String(), Rules: c.Rules, Explain: c.Explain}
		a.print(j, func(w io.Writer) {
			fmt.Fprintf(w, "%s (%s)\n    %s\n", paint(w, bold, j.Case), strings.Join(j.Rules, ", "), j.Explain)
		})
	}
}

func (a *app) conform(ctx context.Context, cases []conformance.Case) error {
	url, err := a.storeURL()
	if err != nil {
		return err
	}
	url = withSuitePrefix(url)
	if err := answers(ctx, url); err != nil {
		return err
	}
	h, done := harnessOf(ctx, url)
	defer done()
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	r := &report{app: a, total: len(cases), fail: stop}
	if isTerminal(a.Err) {
		a.say("%s", count(len(cases), "case", "cases"))
	}
	// If the reader has gone (| head), the run ends in order: the signal would end
	// the process, and leave its tickets to their leases.
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	defer signal.Stop(pipe)
	conformance.Check(ctx, h, cases, r.add)
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return r.close()
}

// answers returns nil if the store can be used. On a store that cannot be used, the
// suite would report that a hundred times.
func answers(ctx context.Context, url string) error {
	c, err := openURL(ctx, url)
	if err != nil {
		return err
	}
	defer c.Close()
	return c.Ping(ctx)
}

// report prints results as they come.
type report struct {
	*app
	total   int
	passed  int
	failed  []string
	skipped map[string]int // by what they lack
	fail    func(error)    // called when nobody reads
}

func (r *report) add(result conformance.Result) {
	j := caseJSON{
		Case: result.Case.String(), Rules: result.Case.Rules, Explain: result.Case.Explain,
		Seconds: seconds(result.Took.Round(time.Millisecond)), Lacks: result.Missing, Log: result.Log,
	}
	switch {
	case result.Passed():
		r.passed++
		j.Result = "passed"
	case result.Err != nil:
		r.failed = append(r.failed, j.Case)
		j.Result, j.Error = "failed", result.Err.Error()
	default:
		if r.skipped == nil {
			r.skipped = make(map[string]int)
		}
		r.skipped[strings.Join(result.Missing, ", ")]++
		j.Result = "skipped"
	}
	if r.print(j, j.write); r.out.err != nil {
		r.fail(r.out.err)
	}
}

func (j caseJSON) write(w io.Writer) {
	switch j.Result {
	case "passed":
		fmt.Fprintf(w, "%s  %s (%.1fs)\n", paint(w, green, "pass"), j.Case, j.Seconds)
	case "failed":
		fmt.Fprintf(w, "%s  %s (%.1fs)\n      %s: %s\n      %s\n", paint(w, red, "FAIL"), j.Case, j.Seconds,
			strings.Join(j.Rules, ", "), j.Explain, printable(oneLine(j.Error)))
	}
}

// lacks describes the parts of a Harness to the reader of the report.
var lacks = map[string]string{
	"OpenLink": "cut the way to the store", "Server": "kill or pause the store", "Keys": "count what the store holds",
}

// close prints how much passed. A failed case makes it an error.
func (r *report) close() error {
	j := reportJSON{Cases: r.total, Passed: r.passed, Failed: len(r.failed)}
	var why []string
	for _, part := range slices.Sorted(maps.Keys(r.skipped)) {
		n := r.skipped[part]
		j.Skipped += n
		words := strings.Split(part, ", ")
		for i, word := range words {
			words[i] = lacks[word]
		}
		why = append(why, fmt.Sprintf("%d that %s", n, strings.Join(words, " and ")))
	}
	r.print(j, func(w io.Writer) {
		text := fmt.Sprintf("\n%d of %s passed", j.Passed, count(j.Cases, "case", "cases"))
		if j.Failed > 0 {
			text += fmt.Sprintf(", %s: %s", paint(w, red, fmt.Sprint(j.Failed, " failed")), strings.Join(r.failed, ", "))
		}
		if j.Skipped > 0 {
			text += fmt.Sprintf("; not run here: %s", strings.Join(why, ", "))
		}
		fmt.Fprintln(w, text)
	})
	if j.Failed > 0 {
		return exit(ExitFailure, nil, "")
	}
	return nil
}
