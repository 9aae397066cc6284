package locker_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

var errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}

// hung is a store that does not answer: it returns when the context ends, with an
// error that it knows.
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

// Until the store has said that the ticket is queued, the end of a wait is
// ErrUnavailable and not ErrNotAcquired; and every call returns in time.
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

// Once the ticket is queued, the error is that of the limit, joined with that of the
// store if it is away.
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
		want(t, err, syscall.ECONNREFUSED)
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Second, cancel)
		_, err = l.Acquire(ctx, "a")
		want(t, err, context.Canceled)
		if n := strings.Count(err.Error(), "context canceled"); n != 1 {
			t.Errorf("%v says it %d times", err, n)
		}
	})
}

// Errors of the network are ErrUnavailable from every call; a refusal is not.
func TestUnavailable(t *testing.T) {
	s := newStub()
	var answer error
	s.acquire = func(context.Context, driver.Request, acquireFunc) (driver.Grant, error) {
		return driver.Grant{}, driver.NoTicket(answer)
	}
	l := locker.New(s)
	defer l.Close()
	for _, err := range []error{errRefused, fmt.Errorf("read: %w", syscall.ECONNRESET), driver.Unavailable(errors.New("no leader"))} {
		answer = err
		_, got := l.Acquire(context.Background(), "a")
		want(t, got, locker.ErrUnavailable)
		want(t, got, err)
	}
	for _, err := range []error{
		errors.New("wrong password"),
		&url.Error{Op: "Put", URL: "https://h", Err: x509.UnknownAuthorityError{}},
		&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")},
	} {
		answer = err
		if _, err := l.Acquire(context.Background(), "a"); errors.Is(err, locker.ErrUnavailable) {
			t.Errorf("%v is ErrUnavailable", err)
		}
	}
}

// The error of a release says why the store was not reached, though the last try had
// no time left.
func TestReleaseSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		k := acquire(t, l, "a")
		s.set(func(s *stub) {
			s.release = func(ctx context.Context, _ driver.Hold, _ releaseFunc) error {
				select {
				case <-time.After(400 * time.Millisecond):
					return errRefused
				case <-ctx.Done():
					return ctx.Err()
				}
			}
		})
		want(t, k.Release(context.Background()), syscall.ECONNREFUSED)
		s.set(func(s *stub) { s.release = nil })
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

func TestPing(t *testing.T) {
	l := locker.New(memory.New())
	if err := l.Ping(context.Background()); err != nil {
		t.Error(err)
	}
	_ = l.Close()
	want(t, l.Ping(context.Background()), locker.ErrClosed)
	p := locker.New(&pinged{Driver: memory.New(), err: errRefused})
	defer p.Close()
	err := p.Ping(context.Background())
	want(t, err, locker.ErrUnavailable)
	want(t, err, syscall.ECONNREFUSED)
}

type pinged struct {
	*memory.Driver
	err error
}

func (p *pinged) Ping(context.Context) error { return p.err }

// When one goroutine of an owner takes over from another whose wait was cancelled, a
// try of the same owner returns at once.
func TestOwnerTakesOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l, other := locker.New(s), locker.New(s.Join())
		defer l.Close()
		defer other.Close()
		me := locker.WithOwner("me")
		blocker := acquire(t, other, "a")
		ctx, cancel := context.WithCancel(context.Background())
		failed := make(chan error, 1)
		go func() {
			_, err := l.Acquire(ctx, "a", me)
			failed <- err
		}()
		synctest.Wait()
		got := make(chan *locker.Lock, 1)
		go func() { got <- acquire(t, l, "a", me) }()
		synctest.Wait()
		cancel()
		want(t, <-failed, context.Canceled)
		synctest.Wait() // the second has taken over, and is queued
		begun := time.Now()
		_, err := l.TryAcquire(context.Background(), "a", me)
		want(t, err, locker.ErrNotAcquired)
		if d := time.Since(begun); d != 0 {
			t.Errorf("the try took %v", d)
		}
		release(t, blocker)
		release(t, <-got)
	})
}

// The bound for the store's answer holds for a goroutine that takes over.
func TestOwnerTakesOverAStoreThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s, locker.WithReleaseTimeout(time.Second))
		other := locker.New(s.Join())
		defer l.Close()
		defer other.Close()
		me := locker.WithOwner("me")
		acquire(t, other, "a")
		ctx, cancel := context.WithCancel(context.Background())
		go func() { _, _ = l.Acquire(ctx, "a", me) }()
		synctest.Wait()
		failed := make(chan error, 1)
		go func() {
			_, err := l.Acquire(context.Background(), "a", me)
			failed <- err
		}()
		time.Sleep(time.Minute)
		s.set(func(s *stub) { s.acquire = hung(nil).acquire })
		begun := time.Now()
		cancel()
		want(t, <-failed, locker.ErrUnavailable)
		if d := time.Since(begun); d > 10100*time.Millisecond {
			t.Errorf("failed after %v", d)
		}
	})
}

// A waiter whose ticket was lost in an outage asks for another one until the store
// is back.
func TestWaiterQueuesAgainWhenTheStoreIsBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStub()
		l := locker.New(s)
		defer l.Close()
		holder := acquire(t, l, "a")
		calls := 0
		s.set(func(s *stub) {
			s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
				switch calls++; {
				case calls == 1:
					r.Joined()
					time.Sleep(time.Minute)
					return driver.Grant{}, driver.ErrLost
				case calls < 20:
					return driver.Grant{}, driver.NoTicket(errRefused)
				default:
					return next(ctx, r)
				}
			}
		})
		got := make(chan *locker.Lock)
		go func() { got <- acquire(t, l, "a") }()
		time.Sleep(2 * time.Minute)
		release(t, holder)
		release(t, <-got)
	})
}
