package election_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/election"
	"github.com/lockerproject/locker/internal/memorytest"
)

var errOwn = errors.New("of lead")

// Candidates lead one at a time, in order, and again when all others have led.
func TestStepDownGivesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorytest.New(t)
		var leaders atomic.Int64
		h := newHistory()
		for i := range 3 {
			l, _ := b.Join()
			id := fmt.Sprint(i)
			running(t, candidate(t, l, election.WithID(id)), func(context.Context, *election.Term) error {
				if leaders.Add(1) != 1 {
					t.Error("two leaders")
				}
				defer leaders.Add(-1)
				h.add("%s", id)
				time.Sleep(time.Minute)
				return nil
			})
			synctest.Wait()
		}
		time.Sleep(5*time.Minute + time.Second)
		want := []string{"0s: 0", "1m0s: 1", "2m0s: 2", "3m0s: 0", "4m0s: 1", "5m0s: 2"}
		if got := h.all(); !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
	})
}

// A leader whose store is down ends before another one is elected, and campaigns
// again until the store is back.
func TestLossEndsBeforeTheNextElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorytest.New(t)
		first, s := b.Join(locker.WithSafetyMargin(2 * time.Second))
		h := newHistory()
		lead := func(id string) func(context.Context, *election.Term) error {
			return func(ctx context.Context, _ *election.Term) error {
				h.add("%s begins", id)
				<-ctx.Done()
				time.Sleep(time.Second) // within the safety margin
				h.add("%s ends: %v", id, context.Cause(ctx))
				return errOwn // of a term that was lost: no reason to give up
			}
		}
		stop := running(t, candidate(t, first, election.WithTTL(9*time.Second)), lead("first"))
		synctest.Wait()
		time.Sleep(4 * time.Second) // renewed after 3 s
		second, _ := b.Join()
		stopSecond := running(t, candidate(t, second, election.WithTTL(9*time.Second)), lead("second"))
		s.Away.Store(true)
		time.Sleep(36 * time.Second)
		s.Away.Store(false)
		time.Sleep(20 * time.Second)
		_ = stopSecond()
		synctest.Wait()
		_ = stop()
		want := []string{
			"0s: first begins",
			"11s: first ends: lock lost",
			"12s: second begins",
			"1m1s: second ends: context canceled",
			"1m1s: first begins",
			"1m2s: first ends: context canceled",
		}
		if got := h.all(); !slices.Equal(got, want) {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// However slow the function is, nobody else is elected before it has returned.
func TestStepDownWaitsForTheFunction(t *testing.T) {
	for _, how := range []string{"StepDown", "end of Run's context"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := memorytest.New(t)
				first, _ := b.Join()
				second, _ := b.Join()
				h := newHistory()
				e := candidate(t, first)
				stop := running(t, e, func(ctx context.Context, term *election.Term) error {
					<-ctx.Done()
					h.add("asked to end")
					time.Sleep(10 * time.Minute) // longer than any lease
					h.add("ended: %v", term.Err())
					return nil
				})
				synctest.Wait()
				running(t, candidate(t, second), func(ctx context.Context, _ *election.Term) error {
					h.add("next")
					return untilEnd(ctx, nil)
				})
				time.Sleep(time.Minute)
				var want []string
				if how == "StepDown" {
					if err := e.Leading().StepDown(t.Context()); err != nil || e.Leading() != nil {
						t.Errorf("step down: %v, leading: %v", err, e.Leading())
					}
					want = []string{"1m0s: asked to end", "11m0s: ended: stepped down", "11m0s: next"}
				} else {
					go func() { _ = stop() }()
					want = []string{"1m0s: asked to end", "11m0s: ended: <nil>", "11m0s: next"}
				}
				time.Sleep(20 * time.Minute)
				if got := h.all(); !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		})
	}
}

// Each result of Run's function gives Run's result.
func TestRunEnds(t *testing.T) {
	for _, c := range []struct {
		name string
		lead func(ctx context.Context, stop func()) error
		want error
	}{
		{"resign", func(context.Context, func()) error { return fmt.Errorf("enough: %w", election.ErrResign) }, nil},
		{"error", func(context.Context, func()) error { return errOwn }, errOwn},
		{"ctx", func(ctx context.Context, stop func()) error { stop(); <-ctx.Done(); return nil }, context.Canceled},
		{"ctx and error", func(ctx context.Context, stop func()) error { stop(); <-ctx.Done(); return errOwn }, errOwn},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, _ := memorytest.New(t).Join()
			e := candidate(t, l)
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			err := e.Run(ctx, func(ctx context.Context, _ *election.Term) error { return c.lead(ctx, stop) })
			if !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("got %v, want %v", err, c.want)
			}
			if _, err := e.Leader(t.Context()); !errors.Is(err, election.ErrNoLeader) {
				t.Errorf("the leader afterwards: %v", err)
			}
		})
	}
}

func TestPanicGivesUp(t *testing.T) {
	l, _ := memorytest.New(t).Join()
	e := candidate(t, l)
	func() {
		defer func() {
			if r := recover(); r != "at work" {
				t.Errorf("recovered %v", r)
			}
		}()
		_ = e.Run(t.Context(), func(context.Context, *election.Term) error { panic("at work") })
	}()
	if _, err := e.Leader(t.Context()); !errors.Is(err, election.ErrNoLeader) {
		t.Errorf("the leader afterwards: %v", err)
	}
}

// An outage does not end a campaign; an error that waiting does not mend does.
func TestCampaignSurvivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := memorytest.New(t).Join()
		s.Away.Store(true)
		e := candidate(t, l)
		running(t, e, untilEnd)
		time.Sleep(10 * time.Minute)
		if e.Leading() != nil {
			t.Error("elected during the outage")
		}
		s.Away.Store(false)
		time.Sleep(6 * time.Second)
		if e.Leading() == nil {
			t.Error("not elected after the outage")
		}
	})
	l, _ := memorytest.New(t).Join()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := candidate(t, l).Run(t.Context(), untilEnd); !errors.Is(err, locker.ErrClosed) {
		t.Errorf("Run on a closed Locker: %v", err)
	}
}

// A function that does not return is reported within the safety margin.
func TestOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := memorytest.New(t).Join(locker.WithSafetyMargin(3 * time.Second))
		h := newHistory()
		stubborn := election.WithOverrun(2*time.Second, func(token uint64) { h.add("overrun of %t", token > 0) })
		e := candidate(t, l, election.WithTTL(9*time.Second), stubborn)
		patience := 10 * time.Minute
		stop := running(t, e, func(ctx context.Context, _ *election.Term) error {
			<-ctx.Done()
			time.Sleep(patience)
			h.add("returned")
			return election.ErrResign
		})
		synctest.Wait()
		s.Away.Store(true)
		time.Sleep(20 * time.Minute)
		if got, want := h.all(), []string{"8s: overrun of true", "10m6s: returned"}; !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		if err := stop(); err != nil {
			t.Error(err)
		}
		s.Away.Store(false)
		patience = time.Second // in time
		stop = running(t, e, func(ctx context.Context, _ *election.Term) error {
			<-ctx.Done()
			time.Sleep(patience)
			return nil
		})
		time.Sleep(time.Minute)
		_ = stop()
		if got := h.all(); len(got) != 2 {
			t.Errorf("an overrun of a function that returned in time: %q", got)
		}
	})
}

// Two candidates with the same Locker and ID are two, also under each other's context.
func TestNoReentry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _ := memorytest.New(t).Join()
		e := candidate(t, l, election.WithID("same"))
		first, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(first.Context(t.Context()), 10*time.Minute)
		defer cancel()
		if _, err := e.Campaign(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second campaign: %v", err)
		}
		if err := first.StepDown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, s := memorytest.New(t).Join()
		e := candidate(t, l)
		term, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ctx := term.Context(t.Context())
		if k, ok := locker.FromContext(ctx); !ok || k.Token() != term.Token() || e.Leading() != term {
			t.Errorf("the lock of the context: %v, %v; leading: %v", k, ok, e.Leading())
		}
		if err := term.StepDown(t.Context()); err != nil {
			t.Error(err)
		}
		<-term.Done()
		<-ctx.Done()
		if !errors.Is(term.Err(), election.ErrSteppedDown) || e.Leading() != nil {
			t.Errorf("after stepping down: %v, leading: %v", term.Err(), e.Leading())
		}
		next, err := e.Campaign(t.Context())
		if err != nil || next.Token() <= term.Token() {
			t.Fatalf("the next term: %v, token %d after %d", err, next.Token(), term.Token())
		}
		ctx = next.Context(t.Context())
		s.Away.Store(true)
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), locker.ErrLost) || !errors.Is(next.Err(), locker.ErrLost) {
			t.Errorf("after the loss: %v, %v", context.Cause(ctx), next.Err())
		}
		if err := next.StepDown(t.Context()); !errors.Is(err, locker.ErrLost) {
			t.Errorf("stepping down after the loss: %v", err)
		}
	})
}

func TestBadInput(t *testing.T) {
	l, s := memorytest.New(t).Join()
	s.Away.Store(true) // nothing may be touched
	long := strings.Repeat("x", 513)
	for _, c := range []struct {
		what string
		l    locker.Locker
		name string
		opt  election.Option
		want error
	}{
		{"nothing", l, "e", nil, nil},
		{"longest name", l, long[:486], nil, nil},
		{"Locker", nil, "e", nil, locker.ErrInvalidOption},
		{"no name", l, "", nil, locker.ErrInvalidName},
		{"long name", l, long[:487], nil, locker.ErrInvalidName},
		{"name", l, "\xff", nil, locker.ErrInvalidName},
		{"TTL", l, "e", election.WithTTL(15), locker.ErrInvalidOption},
		{"ID", l, "e", election.WithID(long), locker.ErrInvalidOption},
		{"note", l, "e", election.WithNote("\xff"), locker.ErrInvalidOption},
		{"overrun", l, "e", election.WithOverrun(-1, nil), locker.ErrInvalidOption},
	} {
		if _, err := election.New(c.l, c.name, c.opt); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.what, err)
		}
	}
	if err := candidate(t, l).Run(t.Context(), nil); !errors.Is(err, locker.ErrInvalidOption) {
		t.Errorf("Run without a function: %v", err)
	}
	s.Away.Store(false)
	longest, _ := election.New(l, long[:486])
	term, err := longest.Campaign(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for held := 0; held == 0; time.Sleep(time.Millisecond) { // the name of the term lock fits, too
		q, err := l.Inspect(t.Context(), fmt.Sprintf("%s#term/%d", long[:486], term.Token()))
		if err != nil {
			t.Fatal(err)
		}
		held = len(q.Tickets)
	}
	if err := term.StepDown(t.Context()); err != nil {
		t.Error(err)
	}
}
