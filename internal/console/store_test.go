package console

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
)

// fake is a store whose queues a test sets.
type fake struct {
	polls, answered atomic.Int64
	takes           time.Duration

	mu     sync.Mutex
	err    error
	queues map[string][]locker.Ticket
}

func (f *fake) set(err error, name string, ts ...locker.Ticket) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	if f.queues == nil {
		f.queues = make(map[string][]locker.Ticket)
	}
	f.queues[name] = ts
}

func (f *fake) List(context.Context) ([]string, error) {
	f.polls.Add(1)
	time.Sleep(f.takes)
	defer f.answered.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for name, q := range f.queues {
		if len(q) > 0 {
			names = append(names, name)
		}
	}
	return names, f.err
}

func (f *fake) Inspect(_ context.Context, name string) (locker.Queue, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch name {
	case "fails":
		return locker.Queue{}, errors.New("no answer")
	case "no lock's":
		return locker.Queue{}, &locker.Error{Op: "inspect", Name: name, Err: locker.ErrInvalidName}
	}
	return locker.Queue{Name: name, Tickets: f.queues[name]}, nil
}

func (f *fake) Break(context.Context, string, uint64) error { return locker.ErrUnsupported }

func (f *fake) Ping(context.Context) error { return nil }

func (f *fake) ServerVersion(context.Context) (string, error) { return "", locker.ErrUnsupported }

// run starts a poller of f in a bubble.
func run(t *testing.T, f *fake) *store {
	t.Helper()
	s := newStore(Store{"fake", f}, time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	var done sync.WaitGroup
	done.Go(func() { s.run(ctx) })
	t.Cleanup(func() {
		cancel()
		done.Wait()
	})
	return s
}

func TestPollsOnlyWhileWatched(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		s := run(t, f)
		time.Sleep(time.Hour)
		if n := f.polls.Load(); n != 0 {
			t.Fatalf("%d polls while nobody looked", n)
		}
		news := make(chan struct{}, 1)
		stop, other := s.watch(news), s.watch(make(chan struct{}, 1))
		<-news
		time.Sleep(9500 * time.Millisecond)
		if n := f.polls.Load(); n != 10 {
			t.Errorf("%d polls in 9.5 s for two who look, want 10", n)
		}
		stop()
		other()
		time.Sleep(pollOn + time.Second)
		n := f.polls.Load()
		time.Sleep(time.Hour)
		if more := f.polls.Load() - n; more != 0 || n > 10+int64(pollOn/time.Second)+1 {
			t.Errorf("%d polls in all, %d of them long after the last browser left", n+more, more)
		}
	})
}

func TestSlowStoreIsAskedLessOften(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{takes: 2 * time.Second}
		s := run(t, f)
		defer s.watch(make(chan struct{}, 1))()
		time.Sleep(99 * time.Second)
		if n := f.polls.Load(); n != 10 {
			t.Errorf("%d polls in 99 s of a store that takes 2 s, want 10", n)
		}
	})
}

// What another program has put beside the locks hides none of them.
func TestNameOfNoLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.set(nil, "a", locker.Ticket{Token: 1, Owner: "x", Held: true, Remaining: time.Minute})
		f.set(nil, "no lock's", locker.Ticket{Token: 2})
		s := run(t, f)
		defer s.watch(make(chan struct{}, 1))()
		time.Sleep(time.Second / 2)
		if ch, _ := s.since(nil); ch.Status.State != up || len(ch.Set) != 1 || ch.Set[0].Name != "a" {
			t.Errorf("status %+v, queues %+v", ch.Status, ch.Set)
		}
	})
}

func TestOutageKeepsTheLastState(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.set(nil, "a", locker.Ticket{Token: 1, Owner: "x", Held: true, Remaining: time.Minute})
		s := run(t, f)
		defer s.watch(make(chan struct{}, 1))()
		time.Sleep(2500 * time.Millisecond)
		f.set(errors.New("connection refused"), "a", locker.Ticket{Token: 1, Owner: "x", Held: true, Remaining: time.Minute})
		began := time.Now()
		time.Sleep(20 * time.Second)
		ch, snap := s.since(nil)
		if ch.Status.State != down || ch.Status.Error != "connection refused" || len(ch.Set) != 1 {
			t.Errorf("in the outage: %+v with %d queues", ch.Status, len(ch.Set))
		}
		if d := ch.Status.Since - began.UnixMilli(); d < 0 || d > 1000 || ch.Status.At >= ch.Status.Since {
			t.Errorf("down since %d ms after the outage began, last answer at %d", d, ch.Status.At)
		}
		f.set(nil, "a", locker.Ticket{Token: 1, Owner: "x", Held: true, Remaining: time.Minute})
		time.Sleep(maxRetry + time.Second)
		if ch, _ = s.since(snap); ch.Status.State != up || ch.Status.Error != "" {
			t.Errorf("after the outage: %+v", ch.Status)
		}
		if es := s.history("a").Events; len(es) != 0 {
			t.Errorf("events of a lock in which nothing happened: %+v", es)
		}
	})
}

// TestHalfAnAnswerIsNone: a queue that could not be asked for must not look released.
func TestHalfAnAnswerIsNone(t *testing.T) {
	t.Parallel()
	f := &fake{}
	for i := range 100 {
		f.set(nil, fmt.Sprint(i), locker.Ticket{Token: 1, Held: true})
	}
	s := newStore(Store{"fake", f}, time.Second)
	s.poll(t.Context())
	f.set(nil, "fails", locker.Ticket{Token: 1, Held: true})
	s.poll(t.Context())
	ch, snap := s.since(nil)
	if ch.Status.State != down || len(snap.queues) != 100 {
		t.Errorf("%s with %d queues, want down with the 100 of before", ch.Status.State, len(snap.queues))
	}
}

func TestCloseWaitsForThePollers(t *testing.T) {
	t.Parallel()
	f := &fake{takes: 50 * time.Millisecond}
	c, err := New([]Store{{"fake", f}}, Options{Token: testToken})
	if err != nil {
		t.Fatal(err)
	}
	defer c.stores[0].watch(make(chan struct{}, 1))()
	eventually(t, "the store is asked", func() bool { return f.polls.Load() > 0 })
	c.Close()
	if f.answered.Load() != f.polls.Load() {
		t.Error("Close has not waited for a poll")
	}
}

func TestUnsupported(t *testing.T) {
	t.Parallel()
	f := &fake{}
	f.set(fmt.Errorf("list: %w", locker.ErrUnsupported), "a")
	s := newStore(Store{"fake", f}, time.Second)
	s.poll(t.Context())
	if ch, _ := s.since(nil); ch.Status.State != unsupported {
		t.Errorf("state %s", ch.Status.State)
	}
}

// TestOldStateIsMarked: who comes back after an hour must not take the state of then
// for that of now.
func TestOldStateIsMarked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := run(t, &fake{takes: time.Second})
		stop := s.watch(make(chan struct{}, 1))
		time.Sleep(1500 * time.Millisecond)
		if ch, _ := s.since(nil); ch.Status.State != up {
			t.Fatalf("state %s", ch.Status.State)
		}
		stop()
		time.Sleep(time.Hour)
		defer s.watch(make(chan struct{}, 1))()
		if ch, _ := s.since(nil); ch.Status.State != connecting {
			t.Errorf("state %s, want connecting", ch.Status.State)
		}
		time.Sleep(1500 * time.Millisecond)
		if ch, _ := s.since(nil); ch.Status.State != up {
			t.Errorf("state %s after a poll", ch.Status.State)
		}
	})
}

// Time in which nobody watched, or the store did not answer, is no time without grants.
func TestUnwatchedTimeIsNoZero(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		s := run(t, f)
		seen := func() (text string) {
			ch, _ := s.since(nil)
			for _, is := range ch.Seen {
				text += map[bool]string{true: "+", false: "-"}[is]
			}
			return text
		}
		if text := seen(); strings.Contains(text, "+") {
			t.Errorf("before the first poll: %s", text)
		}
		stop := s.watch(make(chan struct{}, 1))
		time.Sleep(21500 * time.Millisecond) // in the middle of a bucket
		if text := seen(); !strings.HasSuffix(text, "-+++++++++++") {
			t.Errorf("watched for 22 s: %s", text)
		}
		f.set(errors.New("no answer"), "a")
		time.Sleep(20200 * time.Millisecond)
		f.set(nil, "a")
		time.Sleep(maxRetry)
		if text := seen(); !regexp.MustCompile(`\+{11}-{11}\+$`).MatchString(text) {
			t.Errorf("after an outage of 20 s: %s", text)
		}
		stop()
		time.Sleep(time.Minute)
		stop = s.watch(make(chan struct{}, 1))
		time.Sleep(1100 * time.Millisecond)
		if text := seen(); !regexp.MustCompile(`\+-{21}\+\+$`).MatchString(text) {
			t.Errorf("after a minute without viewers: %s", text)
		}
		stop()
	})
}

// A store that cannot list is not asked again and again.
func TestUnsupportedIsAskedSeldom(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := &fake{}
		f.set(fmt.Errorf("list: %w", locker.ErrUnsupported), "a")
		s := run(t, f)
		defer s.watch(make(chan struct{}, 1))()
		time.Sleep(10*time.Minute - time.Second)
		if n := f.polls.Load(); n != 10 {
			t.Errorf("%d polls in 10 minutes", n)
		}
	})
}
