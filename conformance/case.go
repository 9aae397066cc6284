package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"
)

// Case is one row of the suite: a rule, and the function that tests it.
type Case struct {
	Topic   string
	Name    string
	Rules   []string // D1 to D20 of package driver, C1 to C10 of this package
	Explain string   // what a failure means for a user
	Needs   Needs

	place place
	busy  bool // it keeps the store busy, and does not wait
	long  bool // it waits for longer than others, and begins before them
	prove func(e *env)
}

// A place says what may run beside a case.
type place uint8

const (
	alone    place = iota // nothing: it measures times, or counts goroutines
	beside                // any other case
	ownStore              // only cases on other stores: it breaks the store, or counts keys
)

// topic returns cases as those of a topic.
func topic(name string, cases ...Case) []Case {
	for i := range cases {
		cases[i].Topic = name
	}
	return cases
}

// newCase returns a case that needs nothing and runs beside any other. The rules are separated by blanks.
func newCase(name, rules, explain string, prove func(*env)) Case {
	return Case{Name: name, Rules: strings.Fields(rules), Explain: explain, place: beside, prove: prove}
}

func (c Case) needs(n Needs) Case { c.Needs = n; return c }
func (c Case) at(p place) Case    { c.place = p; return c }
func (c Case) keepsBusy() Case    { c.busy = true; return c }
func (c Case) waitsLong() Case    { c.long = true; return c }

// String is the name of the case's sub-test.
func (c Case) String() string { return c.Topic + "/" + c.Name }

// Cases returns all cases, in the order in which Run reports them.
func Cases() []Case {
	var all []Case
	for _, cases := range [][]Case{
		exclusion, fairness, handOffs, tries, expiry, ownership, lapses, reentry, fencing, loss, cancellation, removal, timeLimits, minHolds,
		names, options, failures, unanswered, closing, inspection, histories, leaks, outages, endedWaits,
	} {
		all = append(all, cases...)
	}
	slices.SortStableFunc(all, func(a, b Case) int { return cmp.Compare(a.place, b.place) })
	return all
}

// Run runs the case on a driver. It returns an error if the driver breaks a rule.
// It needs no testing.T, so that the suite can be tested on drivers that fail.
func (c Case) Run(ctx context.Context, h Harness) (err error) {
	if missing := c.Needs.missing(h); len(missing) > 0 {
		return fmt.Errorf("the harness has no %s", strings.Join(missing, " and no "))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	e := &env{ctx: ctx, h: h, random: newRandom()}
	watchdog := time.AfterFunc(caseBound, func() {
		cancel(fmt.Errorf("the case did not end within %v", caseBound))
	})
	defer watchdog.Stop()
	defer e.close()
	ended := make(chan error, 1)
	go func() {
		err := errGoexit // if Open ends the goroutine, as t.FailNow does
		defer func() { ended <- err }()
		err = c.attempt(e)
	}()
	select {
	case err = <-ended:
	case <-time.After(caseBound + patience):
		err = fmt.Errorf("a method of the driver has not returned %v after its context ended (D16); the cases that run:\n%s", patience, runningCases())
	}
	if err != nil && context.Cause(ctx) != nil {
		err = errors.Join(err, context.Cause(ctx))
	}
	return e.random.explain(err)
}

// attempt runs the case and returns its failure.
func (c Case) attempt(e *env) (err error) {
	defer func() {
		switch failed := recover().(type) {
		case nil:
		case failure:
			err = failed.error
		default:
			err = fmt.Errorf("panic: %v\n%s", failed, debug.Stack())
		}
	}()
	c.prove(e)
	for _, name := range e.names {
		e.empty(name)
	}
	return nil
}

// runningCases returns the stacks of the goroutines that run cases.
func runningCases() string {
	buf := make([]byte, 4<<20)
	all := strings.Split(string(buf[:runtime.Stack(buf, true)]), "\n\n")
	return strings.Join(slices.DeleteFunc(all, func(s string) bool { return !strings.Contains(s, "conformance.Case.attempt") }), "\n\n")
}

// cites returns the rules as text.
func (c Case) cites() string { return strings.Join(c.Rules, ", ") }

// failure carries an error up to Case.Run as a panic, so that cases need not
// return errors.
type failure struct{ error }

// failf ends the case. Call it from the case's goroutine, or from one that each
// has started.
func (e *env) failf(format string, args ...any) {
	panic(failure{fmt.Errorf(format, args...)})
}

// ok ends the case when err is not nil.
func (e *env) ok(err error, doing string, args ...any) {
	if err != nil {
		e.failf("%s: %w", fmt.Sprintf(doing, args...), err)
	}
}

// logf adds a figure to the log of the case.
func (e *env) logf(format string, args ...any) {
	if e.h.logf != nil {
		e.h.logf(format, args...)
	}
}

// skip records that the case does not apply to the driver, which lacks something optional.
func (e *env) skip(why string) {
	if e.h.skip != nil {
		e.h.skip(why)
	}
}

// errOf returns the error of a call.
func errOf(_ any, err error) error { return err }

// is ends the case when err does not wrap want.
func (e *env) is(err, want error, doing string, args ...any) {
	if !errors.Is(err, want) {
		e.failf("%s: got error %v, want %w", fmt.Sprintf(doing, args...), err, want)
	}
}
