package compose_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
	"github.com/lockerproject/locker/internal/testbed"
)

// The suite on real stores, which can be cut off, stopped and killed, both at once. The
// same cases do not apply.

func TestConformanceStoresAll(t *testing.T) {
	proveStores(t, notFirst, "all://(%s)(%s)?authority=0&prefix=conformance", 0)
}

// twice are the cases that do not apply to Fallback on stores that fail: then it grants
// twice, as documented.
var twice = map[string]string{
	"history/with-cuts":  "a program that is cut off from the primary is granted what another holds there",
	"history/with-kills": "the secondary, back first, grants what is held on the primary",
}

func TestConformanceStoresFallback(t *testing.T) {
	proveStores(t, twice, "fallback://(%s)(%s)?prefix=conformance", 1500*time.Millisecond)
}

// proveStores proves a URL that is made of two stores. After an outage, programs notice
// that the stores are back within the time given.
func proveStores(t *testing.T, not map[string]string, format string, notice time.Duration) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out with -short")
	}
	h := stores(t, format, notice)
	h.NewServer = func(context.Context) (conformance.Harness, error) { return stores(t, format, notice), nil }
	prove(t, not, h)
}

// stores is the harness of a URL that is made of a Redis and a PostgreSQL.
func stores(t *testing.T, format string, notice time.Duration) conformance.Harness {
	t.Helper()
	first := testbed.Redis(t, testbed.Kept(), testbed.Faults())
	second := testbed.Postgres(t, testbed.Faults(), testbed.Args("-c", "max_connections=500"))
	open := func(ctx context.Context, first, second string) (driver.Driver, error) {
		u, err := driver.ParseURL(fmt.Sprintf(format, first, second))
		if err != nil {
			return nil, err
		}
		return driver.Open(ctx, u)
	}
	return conformance.Harness{
		Open: func(ctx context.Context) (driver.Driver, error) { return open(ctx, first.URL(), second.URL()) },
		OpenLink: func(ctx context.Context) (driver.Driver, conformance.Link, error) {
			p, q := first.Proxy(t), second.Proxy(t)
			d, err := open(ctx, p.URL(), q.URL())
			return d, links{p, q, notice}, err
		},
		Server: servers{first, second, notice},
	}
}

// A primary that hangs, is killed or is cut off costs no request that has a limit, and the
// requests after the first ones no time. When it is back it is used again.
func TestFallbackOnRealStores(t *testing.T) {
	if testing.Short() {
		t.Skip("left out with -short")
	}
	t.Parallel()
	for name, start := range map[string]func(testing.TB, ...testbed.Option) *testbed.Server{
		"redis": testbed.Redis, "postgres": testbed.Postgres,
	} {
		server := start(t, testbed.Faults())
		proxy := server.Proxy(t)
		for fault, f := range map[string]struct{ begin, end func() }{
			"hangs":  {server.Pause, server.Resume},
			"killed": {server.Kill, server.Start},
			"cut":    {proxy.Cut, proxy.Heal},
		} {
			t.Run(name+"/"+fault, func(t *testing.T) {
				u, err := driver.ParseURL(proxy.URL())
				if err != nil {
					t.Fatal(err)
				}
				primary, err := driver.Open(t.Context(), u)
				if err != nil {
					t.Fatal(err)
				}
				var degraded atomic.Bool
				l := locker.New(compose.Fallback(primary, memory.New()), locker.WithObserver(func(_ context.Context, e locker.Event) {
					if e.Kind == locker.EventAcquired {
						degraded.Store(e.Degraded != nil)
					}
				}))
				defer l.Close()
				release(t, acquire(t, l))
				f.begin()
				for range 5 {
					release(t, acquire(t, l, locker.WithWait(time.Second)))
				}
				if !degraded.Load() {
					t.Error("the last grant was the primary's")
				}
				time.Sleep(2 * time.Second) // a ping without an answer takes one
				if took := testbed.Elapsed(func() { release(t, acquire(t, l)) }); took > 200*time.Millisecond {
					t.Errorf("a request in the outage took %v", took)
				}
				f.end()
				for degraded.Load() {
					time.Sleep(50 * time.Millisecond)
					release(t, acquire(t, l))
				}
			})
		}
	}
}

// links is a way to two stores. The second is back when programs have noticed that the first is.
type links struct {
	first, second conformance.Link
	notice        time.Duration
}

func (l links) Cut()                { l.first.Cut(); l.second.Cut() }
func (l links) Heal()               { l.first.Heal(); time.Sleep(l.notice); l.second.Heal() }
func (l links) DropReplies(on bool) { l.first.DropReplies(on); l.second.DropReplies(on) }

// servers are two stores that fail together. They are back when programs have noticed it.
type servers struct {
	first, second conformance.Server
	notice        time.Duration
}

func (s servers) Kill()   { s.first.Kill(); s.second.Kill() }
func (s servers) Start()  { s.first.Start(); s.second.Start(); time.Sleep(s.notice) }
func (s servers) Pause()  { s.first.Pause(); s.second.Pause() }
func (s servers) Resume() { s.first.Resume(); s.second.Resume(); time.Sleep(s.notice) }
