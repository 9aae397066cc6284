package locker_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errDown = errors.New("store is down")

// stub is a memory store whose answers a test can change; next is the real method.
type stub struct {
	*memory.Driver
	mu      sync.Mutex
	acquire func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error)
	renew   func(ctx context.Context, r driver.Renewal, next renewFunc) error
	release func(ctx context.Context, h driver.Hold, next releaseFunc) error
	renewed []time.Time // when renewals came
}

type (
	acquireFunc func(context.Context, driver.Request) (driver.Grant, error)
	renewFunc   func(context.Context, driver.Renewal) error
	releaseFunc func(context.Context, driver.Hold) error
)

func newStub() *stub { return &stub{Driver: memory.New()} }

func (s *stub) set(f func(s *stub)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *stub) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	s.mu.Lock()
	f := s.acquire
	s.mu.Unlock()
	if f != nil {
		return f(ctx, r, s.Driver.Acquire)
	}
	return s.Driver.Acquire(ctx, r)
}

func (s *stub) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	r := driver.Renewal{Hold: h, TTL: ttl}
	next := func(ctx context.Context, r driver.Renewal) error { return s.Driver.Renew(ctx, r.Hold, r.TTL) }
	s.mu.Lock()
	s.renewed = append(s.renewed, time.Now())
	f := s.renew
	s.mu.Unlock()
	if f != nil {
		return f(ctx, r, next)
	}
	return next(ctx, r)
}

func (s *stub) Release(ctx context.Context, h driver.Hold) error {
	s.mu.Lock()
	f := s.release
	s.mu.Unlock()
	if f != nil {
		return f(ctx, h, s.Driver.Release)
	}
	return s.Driver.Release(ctx, h)
}

func (s *stub) renewals() []time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]time.Time(nil), s.renewed...)
}

// queueLen is the number of tickets in the queue of name.
func (s *stub) queueLen(t testing.TB, name string) int {
	t.Helper()
	q, err := s.Inspect(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	return len(q)
}

// events is an observer that collects all events.
type events struct {
	mu   sync.Mutex
	seen []locker.Event
}

func (e *events) add(_ context.Context, ev locker.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.seen = append(e.seen, ev)
}

func (e *events) all() []locker.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.seen)
}

func (e *events) kinds() (kinds []locker.EventKind) {
	for _, ev := range e.all() {
		kinds = append(kinds, ev.Kind)
	}
	return kinds
}

func (e *events) of(kind locker.EventKind) []locker.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	var some []locker.Event
	for _, ev := range e.seen {
		if ev.Kind == kind {
			some = append(some, ev)
		}
	}
	return some
}

func acquire(t testing.TB, l locker.Locker, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	k, err := l.Acquire(context.Background(), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func release(t testing.TB, k *locker.Lock) {
	t.Helper()
	if err := k.Release(context.Background()); err != nil {
		t.Fatal(err)
	}
}

// want fails unless err is the sentinel.
func want(t testing.TB, err, sentinel error) {
	t.Helper()
	if !errors.Is(err, sentinel) {
		t.Fatalf("got error %v, want %v", err, sentinel)
	}
}
