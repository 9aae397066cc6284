package election_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/election"
	"github.com/lockerproject/locker/internal/memorytest"
)

// observing records what an observer is notified of until the test ends.
func observing(t *testing.T, l locker.Locker, h *history) (stop func()) {
	t.Helper()
	e := candidate(t, l)
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		for leader, err := range e.Observe(ctx) {
			switch {
			case ctx.Err() != nil:
				if !errors.Is(err, context.Canceled) {
					t.Errorf("the last entry is %v, %v", leader, err)
				}
			case errors.Is(err, locker.ErrUnavailable):
				h.add("unavailable")
			case err != nil:
				h.add("%v", err)
			case leader.Token == 0:
				h.add("nobody")
			default:
				h.add("%s, %s", leader.Owner, leader.Note)
			}
		}
	})
	stop = func() {
		cancel()
		group.Wait()
	}
	t.Cleanup(stop)
	return stop
}

func equal(t *testing.T, h *history, want ...string) {
	t.Helper()
	if got := h.all(); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Observers are notified of every change at once, and send no requests in between.
func TestObserve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorytest.New(t)
		watcher, _ := b.Join()
		first, _ := b.Join()
		second, _ := b.Join()
		e := candidate(t, first, election.WithID("first"), election.WithNote("a"))
		term, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		h := newHistory()
		observing(t, watcher, h)
		time.Sleep(10 * time.Minute)
		time.Sleep(10 * time.Minute)
		stop := running(t, candidate(t, second, election.WithID("second"), election.WithNote("c")), untilEnd)
		time.Sleep(10 * time.Minute)
		before := b.Inspects.Load()
		time.Sleep(10 * time.Minute)
		if n := b.Inspects.Load() - before; n != 0 {
			t.Errorf("%d requests in ten minutes without a change", n)
		}
		if err := term.StepDown(t.Context()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		_ = stop()
		time.Sleep(time.Minute)
		// A pause of 50 ms, less up to a quarter, comes between two leaders: compare the
		// entries, and their times to the second.
		got := h.all()
		for i, line := range got {
			at, what, _ := strings.Cut(line, ": ")
			d, _ := time.ParseDuration(at)
			got[i] = fmt.Sprintf("%v: %s", d.Truncate(time.Second), what)
		}
		want := []string{"0s: first, a", "40m0s: second, c", "50m0s: nobody"}
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		before = b.Inspects.Load()
		time.Sleep(10 * time.Minute)
		if n := b.Inspects.Load() - before; n > 200 {
			t.Errorf("%d requests in ten minutes without a leader, want one in 5 s", n)
		}
	})
}

// When a leader dies the observer is notified of the next one as soon as it is elected,
// although the two leases of a leader do not end at the same time.
func TestObserveAfterADeath(t *testing.T) {
	for _, renewed := range []time.Duration{0, time.Second, 2 * time.Second, 3 * time.Second, 4 * time.Second, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := memorytest.New(t)
			dying, s := b.Join()
			next, _ := b.Join()
			watcher, _ := b.Join()
			first := candidate(t, dying, election.WithID("first"), election.WithTTL(9*time.Second))
			term, err := first.Campaign(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			elected := newHistory()
			running(t, candidate(t, next, election.WithID("next")), func(ctx context.Context, _ *election.Term) error {
				elected.add("elected")
				return untilEnd(ctx, nil)
			})
			h := &history{begun: elected.begun}
			observing(t, watcher, h)
			time.Sleep(renewed)
			s.Away.Store(true)
			before := b.Inspects.Load()
			time.Sleep(time.Minute)
			at := func(line string) time.Duration {
				d, _, _ := strings.Cut(line, ": ")
				v, _ := time.ParseDuration(d)
				return v
			}
			seen := h.all()
			if len(seen) != 2 || !strings.HasSuffix(seen[1], "next, ") {
				t.Fatalf("the observer was notified of %q", seen)
			}
			if late := at(seen[1]) - at(elected.all()[0]); late > 50*time.Millisecond {
				t.Errorf("dead after %v: the observer was notified of the next leader after %v", renewed, late)
			}
			if n := b.Inspects.Load() - before; n > 60 {
				t.Errorf("dead after %v: %d requests", renewed, n)
			}
			s.Away.Store(false)
			_ = term.StepDown(t.Context())
		})
	}
}

// When a leader's lock is broken the observer is notified of the next leader at once,
// also when the first one has not noticed that its work has to end.
func TestObserveAfterABreak(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorytest.New(t)
		first, _ := b.Join()
		other, _ := b.Join()
		term, err := candidate(t, first, election.WithID("first")).Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		running(t, candidate(t, other, election.WithID("next")), untilEnd)
		synctest.Wait()
		h := newHistory()
		observing(t, other, h)
		synctest.Wait()
		if err := other.Break(t.Context(), "e", term.Token()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		got := h.all()
		if len(got) == 0 || !strings.HasSuffix(got[len(got)-1], ": next, ") {
			t.Errorf("the observer was notified of %q", got)
		}
		if err := term.StepDown(t.Context()); !errors.Is(err, locker.ErrLost) {
			t.Errorf("stepping down after the break: %v", err)
		}
	})
}

// An outage is reported once, and the observer goes on.
func TestObserveSurvivesAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorytest.New(t)
		watcher, s := b.Join()
		h := newHistory()
		s.Away.Store(true)
		observing(t, watcher, h)
		time.Sleep(10 * time.Minute)
		s.Away.Store(false)
		time.Sleep(10 * time.Second)
		if got := h.all(); len(got) != 2 || got[0] != "0s: unavailable" || !strings.HasSuffix(got[1], ": nobody") {
			t.Errorf("the observer was notified of %q", got)
		}
	})
	l, _ := memorytest.New(t).Join()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range candidate(t, l).Observe(t.Context()) {
		if n++; !errors.Is(err, locker.ErrClosed) || n > 1 {
			t.Errorf("entry %d on a closed Locker: %v", n, err)
		}
	}
}

// An observer that is paused when it holds the term lock keeps nobody from leading.
func TestPausedObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorytest.New(t)
		l, _ := b.Join()
		e := candidate(t, l)
		term, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		other, _ := b.Join()
		var group sync.WaitGroup
		group.Go(func() {
			_, err := other.Acquire(t.Context(), fmt.Sprintf("e#term/%d", term.Token()), locker.Shared(), locker.WithTTL(time.Hour))
			if err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		begun := time.Now()
		if err := term.StepDown(t.Context()); err != nil {
			t.Error(err)
		}
		group.Wait()
		term, err = e.Campaign(t.Context())
		if err != nil || time.Since(begun) != 0 {
			t.Fatalf("the next term after %v: %v", time.Since(begun), err)
		}
		if err := term.StepDown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestLeaderAndCandidates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorytest.New(t)
		var all []*election.Election
		for i := range 3 {
			l, _ := b.Join()
			all = append(all, candidate(t, l, election.WithID(fmt.Sprint(i)), election.WithNote("note")))
		}
		if _, err := all[0].Leader(t.Context()); !errors.Is(err, election.ErrNoLeader) {
			t.Errorf("before: %v", err)
		}
		for _, e := range all {
			running(t, e, untilEnd)
			synctest.Wait()
		}
		leader, err := all[2].Leader(t.Context())
		if err != nil || leader.Owner != "0" || leader.Note != "note" || leader.Token != all[0].Leading().Token() {
			t.Errorf("the leader: %+v, %v", leader, err)
		}
		candidates, err := all[2].Candidates(t.Context())
		if err != nil || len(candidates) != 3 {
			t.Fatalf("candidates: %+v, %v", candidates, err)
		}
		for i, c := range candidates {
			if c.Owner != fmt.Sprint(i) || c.Held != (i == 0) {
				t.Errorf("candidate %d: %+v", i, c)
			}
		}
	})
}

// Many elections on three Lockers send no requests when idle.
func TestManyElections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 100
		b := memorytest.New(t)
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for range 3 {
			l, _ := b.Join()
			for i := range n {
				e, err := election.New(l, fmt.Sprint("e", i))
				if err != nil {
					t.Fatal(err)
				}
				group.Go(func() { _ = e.Run(ctx, untilEnd) })
				group.Go(func() {
					for _, err := range e.Observe(ctx) {
						if err != nil && ctx.Err() == nil {
							t.Error(err)
						}
					}
				})
			}
		}
		time.Sleep(time.Minute)
		before := b.Inspects.Load()
		time.Sleep(10 * time.Minute)
		if asked := b.Inspects.Load() - before; asked != 0 {
			t.Errorf("%d requests in ten minutes without a change", asked)
		}
		cancel()
		group.Wait()
	})
}

// With a short wait limit as the default of the Locker, observers poll,
// and yield no error.
func TestObserveWithWaitLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorytest.New(t)
		l, _ := b.Join(locker.WithDefaults(locker.WithWait(0)))
		running(t, candidate(t, l, election.WithID("x")), untilEnd)
		time.Sleep(time.Second)
		h := newHistory()
		observing(t, l, h)
		time.Sleep(10 * time.Minute)
		if n := b.Inspects.Load(); n > 400 {
			t.Errorf("%d requests in ten minutes", n)
		}
		equal(t, h, "0s: x, ")
	})
}

// An entry with an error has the leader of the entry before: an outage is not the end of a
// term.
func TestObserveAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorytest.New(t)
		l, _ := b.Join()
		term, err := candidate(t, l).Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		watcher, s := b.Join()
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		time.AfterFunc(time.Minute, func() {
			s.Away.Store(true)
			_ = l.Break(context.Background(), "e", term.Token()) // the observer wakes up
		})
		entries, failed := 0, 0
		for leader, err := range candidate(t, watcher).Observe(ctx) {
			if entries++; leader.Token != term.Token() {
				t.Errorf("entry %d has leader %+v (error: %v), want the one of the term", entries, leader, err)
			}
			if err != nil {
				failed++
			}
		}
		if entries < 2 || failed == 0 {
			t.Errorf("%d entries, %d of them errors", entries, failed)
		}
		s.Away.Store(false)
		_ = term.StepDown(t.Context())
	})
}
