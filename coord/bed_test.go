package coord_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
	_ "github.com/lockerproject/locker/driver/postgres"
	_ "github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testmain"
)

func TestMain(m *testing.M) {
	testbed.RegisterChild("party", childParty)
	testmain.Run(m)
}

var errDown = errors.New("the store is down")

// store is a client of a store in memory that can go away.
type store struct {
	*memory.Driver
	away     atomic.Bool
	mute     atomic.Int64 // so many trips are made and not answered
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
	g, err := s.Driver.Acquire(ctx, r)
	if err == nil && strings.HasSuffix(r.Name, "#trip") && s.mute.Add(-1) >= 0 {
		return driver.Grant{}, driver.Unavailable(errDown)
	}
	return g, err
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

// stores are the real stores of these tests.
var stores = map[string]func(testing.TB) *testbed.Server{
	"redis":    testbed.SharedRedis,
	"postgres": testbed.SharedPostgres,
}

func open(t *testing.T, url string) *locker.Client {
	t.Helper()
	l, err := locker.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func newName() string { return fmt.Sprintf("coord-%016x", rand.Uint64()) }

// awaitTickets waits until a queue has n tickets.
func awaitTickets(t *testing.T, l locker.Locker, name string, n int) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		q, err := l.Inspect(t.Context(), name)
		if err == nil && len(q.Tickets) == n {
			return
		}
		if time.Since(begun) > 20*time.Second {
			t.Fatalf("the queue is %+v, %v; want %d tickets", q.Tickets, err, n)
		}
	}
}
