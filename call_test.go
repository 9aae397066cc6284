package locker_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

func TestCtxBoundsTheAcquisitionOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(memory.New())
		defer l.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		k, err := l.Acquire(ctx, "a", locker.WithTTL(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if err := k.Err(); err != nil {
			t.Fatalf("the lock ended with the ctx of Acquire: %v", err)
		}
		if err := k.Release(ctx); err != nil {
			t.Fatalf("release with a ctx that has ended: %v", err)
		}
	})
}

// The driver gets the values of the caller's context, such as those for tracing.
func TestContextValuesReachTheStore(t *testing.T) {
	type key struct{}
	s := newStub()
	seen := 0
	check := func(ctx context.Context) {
		before := ctx.Value(key{})
		ctx2, cancel := context.WithCancel(ctx)
		defer cancel()
		if before == "trace" && ctx2.Value(key{}) == "trace" {
			seen++
		}
	}
	s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
		check(ctx)
		return next(ctx, r)
	}
	s.release = func(ctx context.Context, h driver.Hold, next releaseFunc) error {
		check(ctx)
		return next(ctx, h)
	}
	l := locker.New(s)
	defer l.Close()
	ctx := context.WithValue(context.Background(), key{}, "trace")
	k, err := l.Acquire(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Release(ctx); err != nil || seen != 2 {
		t.Errorf("seen %d times of 2; %v", seen, err)
	}
}

func TestStoreThatDoesNotAnswerIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.acquire = func(ctx context.Context, _ driver.Request, _ acquireFunc) (driver.Grant, error) {
			<-ctx.Done()
			return driver.Grant{}, errors.Join(context.Cause(ctx), errDown)
		}
		l := locker.New(s)
		defer l.Close()
		begun := time.Now()
		_, err := l.Acquire(context.Background(), "a")
		want(t, err, errDown)
		if d := time.Since(begun); d > 10*time.Second {
			t.Errorf("took %v", d)
		}
	})
}

// Done, called after the acquisition has returned, returns a closed channel.
func TestContextAskedLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		var kept context.Context
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			kept = ctx
			return next(ctx, r)
		}
		l := locker.New(s)
		defer l.Close()
		acquire(t, l, "a")
		select {
		case <-kept.Done():
		default:
			t.Error("the context of an acquisition that has returned is alive")
		}
	})
}

// A context whose deadline has passed before anybody asks for Done is over.
func TestDeadlineThatHasPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			end, _ := ctx.Deadline()
			time.Sleep(time.Until(end) + time.Second)
			select {
			case <-ctx.Done():
			default:
				t.Error("the deadline has passed, and the context is alive")
			}
			return next(ctx, r)
		}
		l := locker.New(s)
		defer l.Close()
		if k, err := l.Acquire(t.Context(), "a", locker.WithWait(time.Second)); err == nil {
			_ = k.Release(t.Context())
		}
	})
}

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// hung is a store that does not answer: it returns when the context ends, with the
// context's cause and the given error.
func hung(known error) *stub {
	s := newStub()
	s.acquire = func(ctx context.Context, _ driver.Request, _ acquireFunc) (driver.Grant, error) {
		<-ctx.Done()
		return driver.Grant{}, errors.Join(context.Cause(ctx), known)
	}
	s.release = func(ctx context.Context, _ driver.Hold, _ releaseFunc) error {
		<-ctx.Done()
		return errors.Join(context.Cause(ctx), known)
	}
	return s
}

// Until the store has confirmed that the ticket is queued, the end of a wait is
// ErrUnavailable and not ErrNotAcquired. Every call returns in time.
func TestAnOutageIsNoContention(t *testing.T) {
	const limit = 2 * time.Second
	background := context.Background()
	for what, c := range map[string]struct {
		call  func(l *locker.Client) (*locker.Lock, error)
		limit time.Duration
		also  error
	}{
		"wait limit": {func(l *locker.Client) (*locker.Lock, error) {
			return l.Acquire(background, "a", locker.WithWait(limit))
		}, limit, nil},
		"deadline": {func(l *locker.Client) (*locker.Lock, error) {
			ctx, cancel := context.WithTimeout(background, limit)
			defer cancel()
			return l.Acquire(ctx, "a")
		}, limit, context.DeadlineExceeded},
		"no limit": {func(l *locker.Client) (*locker.Lock, error) { return l.Acquire(background, "a") }, 10 * time.Second, nil},
		"try":      {func(l *locker.Client) (*locker.Lock, error) { return l.TryAcquire(background, "a") }, 10 * time.Second, nil},
		"several names": {func(l *locker.Client) (*locker.Lock, error) {
			return locker.AcquireAll(background, l, []string{"a", "b"}, locker.WithWait(limit))
		}, limit, nil},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := locker.New(hung(errRefused), locker.WithReleaseTimeout(time.Second))
				defer l.Close()
				begun := time.Now()
				_, err := c.call(l)
				want(t, err, locker.ErrUnavailable)
				want(t, err, syscall.ECONNREFUSED)
				if c.also != nil {
					want(t, err, c.also)
				}
				if errors.Is(err, locker.ErrNotAcquired) {
					t.Errorf("%v is ErrNotAcquired", err)
				}
				if d := time.Since(begun); d > c.limit+100*time.Millisecond {
					t.Errorf("returned after %v of %v", d, c.limit)
				}
				t.Log(err)
			})
		})
	}
}

// Once the ticket is queued, the error is the limit's, joined with the store's if the
// store is down.
func TestEndOfAWaitInTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		acquire(t, l, "a")
		s.set(func(s *stub) {
			s.acquire = func(ctx context.Context, r driver.Request, _ acquireFunc) (driver.Grant, error) {
				r.Joined()
				<-ctx.Done()
				return driver.Grant{}, errors.Join(context.Cause(ctx), errRefused)
			}
		})
		_, err := l.Acquire(context.Background(), "a", locker.WithWait(time.Second))
		want(t, err, locker.ErrNotAcquired)
		want(t, err, locker.ErrUnavailable)
		want(t, err, syscall.ECONNREFUSED)
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, cancel)
		_, err = l.Acquire(ctx, "a")
		want(t, err, context.Canceled)
		want(t, err, locker.ErrUnavailable)
		if n := strings.Count(err.Error(), "context canceled"); n != 1 {
			t.Errorf("%v says it %d times", err, n)
		}
	})
}

func TestAnswerTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := locker.New(hung(nil), locker.WithAnswerTimeout(3*time.Second), locker.WithReleaseTimeout(time.Second))
		defer l.Close()
		begun := time.Now()
		_, err := l.Acquire(context.Background(), "a")
		want(t, err, locker.ErrUnavailable)
		if d := time.Since(begun); d > 3100*time.Millisecond || !strings.Contains(err.Error(), "3s") {
			t.Errorf("%v after %v", err, d)
		}
	})
	for _, o := range []locker.ClientOption{locker.WithAnswerTimeout(0), locker.WithReleaseTimeout(-1), locker.WithSafetyMargin(-1)} {
		l := locker.New(memory.New(), o)
		_, err := l.Acquire(context.Background(), "a")
		want(t, err, locker.ErrInvalidOption)
		_ = l.Close()
	}
}

// The bound for an answer is the deadline of a request's context, except for an
// acquisition, whose ticket may be queued for longer.
func TestDeadlineOfARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &deadlines{stub: newStub()}
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			s.note(ctx)
			return next(ctx, r)
		}
		l := locker.New(s, locker.WithAnswerTimeout(3*time.Second))
		defer l.Close()
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, ctx := range []context.Context{t.Context(), soon} {
			if _, err := l.Inspect(ctx, "a"); err != nil {
				t.Fatal(err)
			}
			k, err := l.Acquire(ctx, "a")
			if err != nil {
				t.Fatal(err)
			}
			release(t, k)
		}
		if want := []time.Duration{3 * time.Second, 0, time.Second, time.Second}; !slices.Equal(s.left, want) {
			t.Errorf("deadlines in %v, want %v", s.left, want)
		}
	})
}

// deadlines notes when the contexts of requests end; 0: without a deadline.
type deadlines struct {
	*stub
	left []time.Duration
}

func (d *deadlines) note(ctx context.Context) {
	left := time.Duration(0)
	if deadline, ok := ctx.Deadline(); ok {
		left = time.Until(deadline)
	}
	d.left = append(d.left, left)
}

func (d *deadlines) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	d.note(ctx)
	return d.stub.Inspect(ctx, name)
}

// A re-entry that has to lengthen the lease ends at its own limits, though the store
// does not answer the renewal, and leaves the lock as it was.
func TestReentryThatTheStoreDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.renew = func(ctx context.Context, _ driver.Renewal, _ renewFunc) error {
			<-ctx.Done()
			return ctx.Err()
		}
		l := locker.New(s, locker.WithAnswerTimeout(3*time.Second))
		defer l.Close()
		fixed := locker.WithoutRenewal()
		k := acquire(t, l, "a", fixed, locker.WithTTL(time.Minute))
		for _, c := range []struct {
			opts  []locker.Option
			limit time.Duration
			text  string
		}{
			{nil, 3 * time.Second, "within 3s"},
			{[]locker.Option{locker.WithWait(time.Second)}, time.Second, "the wait limit has passed"},
		} {
			begun := time.Now()
			_, err := l.Acquire(k.Context(t.Context()), "a", append(c.opts, fixed, locker.WithTTL(time.Hour))...)
			want(t, err, locker.ErrUnavailable)
			if d := time.Since(begun); d != c.limit || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v after %v, want %q after %v", err, d, c.text, c.limit)
			}
		}
		if err := k.Err(); err != nil {
			t.Error(err)
		}
		release(t, k)
		if n := s.queueLen(t, "a"); n != 0 {
			t.Errorf("%d tickets left", n)
		}
	})
}

// A driver may leave the limit to a connection that gets the deadline, and never wait for
// Done. Whatever the driver returns then, the call has ended at its limit.
func TestLimitThatTheDriverKeepsByItself(t *testing.T) {
	for _, queued := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := newStub()
			s.acquire = func(ctx context.Context, r driver.Request, _ acquireFunc) (driver.Grant, error) {
				if queued {
					r.Joined()
				}
				until, _ := ctx.Deadline()
				time.Sleep(time.Until(until))
				return driver.Grant{}, errors.New("the connection's deadline has passed")
			}
			l := locker.New(s)
			defer l.Close()
			begun := time.Now()
			_, err := l.Acquire(t.Context(), "a", locker.WithWait(3*time.Second))
			if errors.Is(err, locker.ErrNotAcquired) != queued || errors.Is(err, locker.ErrUnavailable) == queued || time.Since(begun) != 3*time.Second {
				t.Errorf("queued: %v: %v", queued, err)
			}
		})
	}
}

// A try has no wait limit: a store that answers later than that is not away.
func TestTryIgnoresTheWaitLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
			select {
			case <-time.After(50 * time.Millisecond):
				return next(ctx, r)
			case <-ctx.Done():
				return driver.Grant{}, context.Cause(ctx)
			}
		}
		l := locker.New(s, locker.WithDefaults(locker.WithWait(10*time.Millisecond)))
		defer l.Close()
		k, err := l.TryAcquire(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		_, err = l.TryAcquire(t.Context(), "a")
		want(t, err, locker.ErrNotAcquired)
		release(t, k)
	})
}
