package stripe_test

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

	"go.uber.org/goleak"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/lockertest"
	"github.com/lockerproject/locker/stripe"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func segments(t *testing.T, l locker.Locker, name string, n int) *stripe.Segments {
	t.Helper()
	s, err := stripe.NewSegments(l, name, n)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func acquire(t *testing.T, s *stripe.Segments, opts ...locker.Option) *stripe.Segment {
	t.Helper()
	k, err := s.Acquire(t.Context(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func release(t *testing.T, k interface{ Release(context.Context) error }) {
	t.Helper()
	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// bubble runs f in a bubble, after which nothing may be left in the store.
func bubble(t *testing.T, f func(t *testing.T, l *lockertest.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := lockertest.New()
		defer func() {
			l.Heal()
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}()
		f(t, l)
		l.AssertFree(t)
	})
}

func TestBadInput(t *testing.T) {
	l := lockertest.New()
	defer l.Close()
	for _, c := range []struct {
		l    locker.Locker
		name string
		n    int
		want error
	}{
		{l, "a", 0, locker.ErrInvalidOption},
		{l, "a", -1, locker.ErrInvalidOption},
		{l, "a", stripe.Most + 1, locker.ErrInvalidOption},
		{nil, "a", 1, locker.ErrInvalidOption},
		{l, "", 1, locker.ErrInvalidName},
		{l, "\xff", 1, locker.ErrInvalidName},
		{l, strings.Repeat("a", 510), 11, locker.ErrInvalidName},
		{l, strings.Repeat("a", 510), 10, nil},
		{l, "a", stripe.Most, nil},
	} {
		s, err := stripe.NewSegments(c.l, c.name, c.n)
		if !errors.Is(err, c.want) || (s == nil) == (c.want == nil) {
			t.Errorf("segments %.9q, %d: %v, want %v", c.name, c.n, err, c.want)
		}
		if c.l == nil {
			continue
		}
		k, err := stripe.NewKeys(c.name, c.n)
		if !errors.Is(err, c.want) || (k == nil) == (c.want == nil) {
			t.Errorf("keys %.9q, %d: %v, want %v", c.name, c.n, err, c.want)
		}
	}
}

// The name of a key is part of the format: programs of different versions must
// agree. And no name gets much more than its part of the keys.
func TestKeys(t *testing.T) {
	k, err := stripe.NewKeys("customer", 16)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"": "customer/5", "alice": "customer/7", "bob": "customer/4"} {
		if got := k.For(key); got != want {
			t.Errorf("%q has %s, want %s", key, got, want)
		}
	}
	count := make(map[string]int)
	for i := range 16_000 {
		count[k.For(fmt.Sprint("key-", i))]++
	}
	for _, name := range k.Names() {
		if count[name] < 800 || count[name] > 1200 {
			t.Errorf("%s has %d of 16000 keys", name, count[name])
		}
		delete(count, name)
	}
	if len(count) > 0 || k.Len() != 16 {
		t.Errorf("names beside the set of %d: %v", k.Len(), count)
	}
}

func TestPrefersTheLast(t *testing.T) {
	bubble(t, func(t *testing.T, l *lockertest.Locker) {
		s := segments(t, l, "s", 5)
		first := acquire(t, s)
		second := acquire(t, s)
		release(t, first)
		release(t, second)
		for range 5 {
			k := acquire(t, s)
			if k.Index != second.Index {
				t.Errorf("got segment %d, want %d again", k.Index, second.Index)
			}
			release(t, k)
		}
	})
}

// A waiter takes the segment that is free first, though it is queued for another one,
// and leaves that queue.
func TestTakesWhatIsFree(t *testing.T) {
	for freed := range 3 {
		bubble(t, func(t *testing.T, l *lockertest.Locker) {
			s := segments(t, l, "s", 3)
			held := map[int]*stripe.Segment{}
			for range 3 {
				k := acquire(t, s)
				held[k.Index] = k
			}
			time.AfterFunc(10*time.Second, func() { release(t, held[freed]) })
			begun := time.Now()
			k := acquire(t, s)
			if k.Index != freed {
				t.Errorf("got segment %d, want %d", k.Index, freed)
			}
			if d := time.Since(begun); d < 10*time.Second || d > 11*time.Second {
				t.Errorf("it took %v", d)
			}
			delete(held, freed)
			release(t, k)
			for _, k := range held {
				release(t, k)
			}
		})
	}
}

// A grant that comes while another segment is taken is released. Acquire does not wait for
// a store that does not answer that.
func TestOneTooMany(t *testing.T) {
	bubble(t, func(t *testing.T, l *lockertest.Locker) { oneTooMany(t, l, false) })
	bubble(t, func(t *testing.T, l *lockertest.Locker) { oneTooMany(t, l, true) })
}

func oneTooMany(t *testing.T, l *lockertest.Locker, hangs bool) {
	t.Helper()
	other := l.Join()
	defer other.Close()
	held := map[string]*locker.Lock{}
	for _, name := range []string{"s/0", "s/1"} {
		k, err := other.Acquire(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		held[name] = k
	}
	// When the waiter finds one of them free, its own is released, too.
	var both atomic.Bool
	var mine *lockertest.Locker
	mine = l.Join(locker.WithObserver(func(_ context.Context, e locker.Event) {
		if e.Kind != locker.EventAcquired || both.Swap(true) {
			return
		}
		for name, k := range held {
			if name != e.Name {
				release(t, k)
			}
		}
		time.Sleep(time.Millisecond) // the grant arrives
		if hangs {
			mine.Hang()
		}
	}))
	defer mine.Close()
	waiting := make(chan string, 1)
	time.AfterFunc(time.Millisecond, func() {
		for name, k := range held {
			if q, err := l.Inspect(t.Context(), name); err != nil || len(q.Tickets) == 1 {
				release(t, k)
			} else {
				waiting <- name
			}
		}
	})
	begun := time.Now()
	k := acquire(t, segments(t, mine, "s", 2))
	if d := time.Since(begun); d > 200*time.Millisecond {
		t.Errorf("Acquire took %v", d)
	}
	mine.Heal()
	time.Sleep(5 * time.Second)
	waits := <-waiting
	if grants := l.Grants(waits); len(grants) != 2 || grants[1].To.IsZero() {
		t.Errorf("the grants of the other segment are %v", grants)
	}
	l.AssertFree(t, waits)
	release(t, k)
}

// The limits of a wait hold, also when the store does not answer.
func TestLimits(t *testing.T) {
	bubble(t, func(t *testing.T, l *lockertest.Locker) {
		s := segments(t, l, "s", 2)
		a, b := acquire(t, s), acquire(t, s)
		if _, err := s.TryAcquire(t.Context()); !errors.Is(err, locker.ErrNotAcquired) {
			t.Errorf("try: %v", err)
		}
		expect := func(want error, after time.Duration, opts ...locker.Option) {
			t.Helper()
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			begun := time.Now()
			_, err := s.Acquire(ctx, opts...)
			d := time.Since(begun)
			if !errors.Is(err, want) || d < after || d > after+100*time.Millisecond {
				t.Errorf("%v after %v, want %v after %v", err, d, want, after)
			}
		}
		expect(context.DeadlineExceeded, 5*time.Second)
		expect(locker.ErrNotAcquired, 2*time.Second, locker.WithWait(2*time.Second))
		time.AfterFunc(time.Second, l.Hang)
		expect(locker.ErrNotAcquired, 2*time.Second, locker.WithWait(2*time.Second))
		l.Heal()
		time.AfterFunc(time.Second, l.Down)
		expect(context.DeadlineExceeded, 5*time.Second)
		_, err := s.Acquire(t.Context())
		if !errors.Is(err, locker.ErrUnavailable) || errors.Is(err, locker.ErrNotAcquired) {
			t.Errorf("on a store that is down: %v", err)
		}
		l.Hang() // one request shows it, not one for each segment
		begun := time.Now()
		_, err = s.Acquire(t.Context())
		if d := time.Since(begun); !errors.Is(err, locker.ErrUnavailable) || d > locker.DefaultAnswerTimeout+100*time.Millisecond {
			t.Errorf("on a store that hangs: %v after %v", err, d)
		}
		l.Heal()
		time.Sleep(time.Minute) // the tickets of the waiters are removed
		release(t, a)
		release(t, b)
	})
}

// Options reach the store: readers share a segment.
func TestOptions(t *testing.T) {
	bubble(t, func(t *testing.T, l *lockertest.Locker) {
		s := segments(t, l, "s", 1)
		a, b := acquire(t, s, locker.Shared()), acquire(t, s, locker.Shared())
		if _, err := s.TryAcquire(t.Context(), locker.WithTTL(-1)); !errors.Is(err, locker.ErrInvalidOption) {
			t.Errorf("got %v", err)
		}
		release(t, a)
		release(t, b)
	})
}

// Do goes on to a busy segment before it says that all are empty.
func TestDoWaitsForBusyOnes(t *testing.T) {
	for full := range 3 {
		bubble(t, func(t *testing.T, l *lockertest.Locker) {
			s := segments(t, l, "s", 3)
			busy, err := l.Acquire(t.Context(), s.Name(full))
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(time.Minute, func() { release(t, busy) })
			var seen []int
			take := func(_ context.Context, i int) error {
				if seen = append(seen, i); i == full {
					return nil
				}
				return stripe.ErrEmpty
			}
			if err := s.Do(t.Context(), take); err != nil || len(seen) != 3 || seen[2] != full {
				t.Errorf("%v, after segments %v; %d has something", err, seen, full)
			}
			full, seen = -1, nil
			err = s.Do(t.Context(), take)
			if slices.Sort(seen); !errors.Is(err, stripe.ErrEmpty) || !slices.Equal(seen, []int{0, 1, 2}) {
				t.Errorf("%v, after segments %v", err, seen)
			}
		})
	}
}

// Do ends with the error of fn, with the loss of the lock, and with fn's panic; the
// segment is released each time.
func TestDoEnds(t *testing.T) {
	bubble(t, func(t *testing.T, l *lockertest.Locker) {
		s := segments(t, l, "s", 3)
		failed := errors.New("failed")
		calls := 0
		err := s.Do(t.Context(), func(ctx context.Context, i int) error {
			calls++
			if k, ok := locker.FromContext(ctx); !ok || k.Name() != s.Name(i) {
				t.Error("the context has no lock")
			}
			return failed
		})
		if !errors.Is(err, failed) || calls != 1 {
			t.Errorf("%v after %d calls", err, calls)
		}
		calls = 0
		err = s.Do(t.Context(), func(_ context.Context, i int) error {
			calls++
			l.Lose(s.Name(i))
			return stripe.ErrEmpty
		})
		if !errors.Is(err, locker.ErrLost) || calls != 1 {
			t.Errorf("a loss: %v after %d calls", err, calls)
		}
		defer func() {
			if recover() != "panic" {
				t.Error("the panic was lost")
			}
		}()
		_ = s.Do(t.Context(), func(context.Context, int) error { panic("panic") })
	})
}

// A wait limit bounds the tries too: on a store that does not answer them, and on one that is slow.
func TestLimitOfTheTries(t *testing.T) {
	for _, hangs := range []bool{true, false} {
		bubble(t, func(t *testing.T, l *lockertest.Locker) {
			held := acquire(t, segments(t, l, "s", 1))
			slow := slowly{l, 300 * time.Millisecond}
			want := locker.ErrNotAcquired
			if hangs {
				slow.takes, want = 0, locker.ErrUnavailable
				l.Hang()
			}
			s, err := stripe.NewSegments(slow, "s", 1)
			if err != nil {
				t.Fatal(err)
			}
			begun := time.Now()
			_, err = s.Acquire(t.Context(), locker.WithWait(time.Second))
			if d := time.Since(begun); !errors.Is(err, want) || d > 1100*time.Millisecond {
				t.Errorf("%v after %v", err, d)
			}
			l.Heal()
			time.Sleep(time.Minute)
			release(t, held)
		})
	}
}

// slowly is a Locker whose tries take some time.
type slowly struct {
	locker.Locker
	takes time.Duration
}

func (s slowly) TryAcquire(ctx context.Context, name string, opts ...locker.Option) (*locker.Lock, error) {
	time.Sleep(s.takes)
	return s.Locker.TryAcquire(ctx, name, opts...)
}
