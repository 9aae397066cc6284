package election_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
	"github.com/lockerproject/locker/election"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testmain"
)

func TestMain(m *testing.M) {
	testbed.RegisterChild("candidate", childCampaigns)
	testmain.Run(m)
}

var errDown = errors.New("the store is down")

// store is a client of a store in memory that can go away.
type store struct {
	*memory.Driver
	away     atomic.Bool
	inspects *atomic.Int64
}

func (s *store) fault() error {
	if s.away.Load() {
		return driver.Unavailable(errDown)
	}
	return nil
}

func (s *store) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := s.fault(); err != nil {
		return driver.Grant{}, driver.NoTicket(err)
	}
	return s.Driver.Acquire(ctx, r)
}

func (s *store) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	if err := s.fault(); err != nil {
		return err
	}
	return s.Driver.Renew(ctx, h, ttl)
}

func (s *store) Release(ctx context.Context, h driver.Hold) error {
	if err := s.fault(); err != nil {
		return err
	}
	return s.Driver.Release(ctx, h)
}

func (s *store) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	if name != pingName {
		s.inspects.Add(1)
	}
	if err := s.fault(); err != nil {
		return nil, err
	}
	return s.Driver.Inspect(ctx, name)
}

// pingName is what a Client with waiters inspects once a second.
const pingName = "locker/ping"

// bed is several processes on one store.
type bed struct {
	t        *testing.T
	space    *memory.Driver
	inspects atomic.Int64 // by all of them
}

func newBed(t *testing.T) *bed {
	b := &bed{t: t, space: memory.New()}
	t.Cleanup(func() { _ = b.space.Close() })
	return b
}

func (b *bed) join(opts ...locker.ClientOption) (*locker.Client, *store) {
	s := &store{Driver: b.space.Join(), inspects: &b.inspects}
	l := locker.New(s, opts...)
	b.t.Cleanup(func() {
		s.away.Store(false)
		_ = l.Close()
	})
	return l, s
}

func candidate(t *testing.T, l locker.Locker, opts ...election.Option) *election.Election {
	t.Helper()
	e, err := election.New(l, "e", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// running runs a candidate until the test ends, or until it is stopped.
func running(t *testing.T, e *election.Election, lead func(context.Context, *election.Term) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	var group sync.WaitGroup
	group.Go(func() { err = e.Run(ctx, lead) })
	stop = func() error {
		cancel()
		group.Wait()
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

// untilEnd leads as long as the leadership lasts.
func untilEnd(ctx context.Context, _ *election.Term) error {
	<-ctx.Done()
	return nil
}

// history records what happened, with the time since it was made.
type history struct {
	begun time.Time
	mu    sync.Mutex
	lines []string
}

func newHistory() *history { return &history{begun: time.Now()} }

func (h *history) add(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf("%v: ", time.Since(h.begun))+fmt.Sprintf(format, args...))
}

func (h *history) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.lines...)
}

// eventually waits until f returns nil, in real time.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Since(begun) > 20*time.Second {
			t.Fatal(err)
		}
	}
}
