// Package memorytest has processes on a store in memory that can go away, for the tests of
// what is built on a Locker.
package memorytest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// ErrDown is the store's error while it is away.
var ErrDown = driver.Unavailable(errors.New("the store is down"))

// Store is the store as one process reaches it.
type Store struct {
	*memory.Driver
	Away     atomic.Bool            // every request is refused
	Lose     func(name string) bool // whether the answer to an acquisition that was granted is lost; nil: none is
	inspects *atomic.Int64
}

var _ driver.Driver = (*Store)(nil)

func (s *Store) fault() error {
	if s.Away.Load() {
		return ErrDown
	}
	return nil
}

// Acquire implements driver.Driver.
func (s *Store) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if err := s.fault(); err != nil {
		return driver.Grant{}, driver.NoTicket(err)
	}
	g, err := s.Driver.Acquire(ctx, r)
	if err == nil && s.Lose != nil && s.Lose(r.Name) {
		return driver.Grant{}, ErrDown
	}
	return g, err
}

// Renew implements driver.Driver.
func (s *Store) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	if err := s.fault(); err != nil {
		return err
	}
	return s.Driver.Renew(ctx, h, ttl)
}

// Release implements driver.Driver.
func (s *Store) Release(ctx context.Context, h driver.Hold) error {
	if err := s.fault(); err != nil {
		return err
	}
	return s.Driver.Release(ctx, h)
}

// Inspect implements driver.Driver.
func (s *Store) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	if name != PingName {
		s.inspects.Add(1)
	}
	if err := s.fault(); err != nil {
		return nil, err
	}
	return s.Driver.Inspect(ctx, name)
}

// PingName is what a Client with waiters inspects once a second.
const PingName = "locker/ping"

// Bed is several processes on one store.
type Bed struct {
	Space    *memory.Driver
	Inspects atomic.Int64 // by all of them
	tb       testing.TB
}

// New makes a store for a test.
func New(tb testing.TB) *Bed {
	tb.Helper()
	b := &Bed{tb: tb, Space: memory.New()}
	tb.Cleanup(func() { _ = b.Space.Close() })
	return b
}

// Join adds a process.
func (b *Bed) Join(opts ...locker.ClientOption) (*locker.Client, *Store) {
	s := &Store{Driver: b.Space.Join(), inspects: &b.Inspects}
	l := locker.New(s, opts...)
	b.tb.Cleanup(func() {
		s.Away.Store(false)
		_ = l.Close()
	})
	return l, s
}
