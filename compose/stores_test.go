package compose_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// The suite on real stores, which can be cut off, stopped and killed, both at once. The
// same cases do not apply.

func TestConformanceStoresAll(t *testing.T) {
	proveStores(t, notFirst, "all://(%s)(%s)?authority=0&prefix=conformance")
}

// twice are the cases that do not apply to Fallback on stores that fail: then it grants
// twice, as documented.
var twice = map[string]string{
	"history/with-cuts":  "a program that is cut off from the primary is granted what another holds there",
	"history/with-kills": "the secondary, back first, grants what is held on the primary",
}

func TestConformanceStoresFallback(t *testing.T) {
	proveStores(t, twice, "fallback://(%s)(%s)?prefix=conformance")
}

func proveStores(t *testing.T, not map[string]string, format string) {
	t.Helper()
	if testing.Short() {
		t.Skip("left out with -short")
	}
	h := stores(t, format)
	h.NewServer = func(context.Context) (conformance.Harness, error) { return stores(t, format), nil }
	prove(t, not, h)
}

// stores is the harness of a URL that is made of a Redis and a PostgreSQL.
func stores(t *testing.T, format string) conformance.Harness {
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
			return d, links{p, q}, err
		},
		Server: servers{first, second},
	}
}

// links is a way to two stores.
type links [2]conformance.Link

func (l links) Cut()                { l[0].Cut(); l[1].Cut() }
func (l links) Heal()               { l[0].Heal(); l[1].Heal() }
func (l links) DropReplies(on bool) { l[0].DropReplies(on); l[1].DropReplies(on) }

// servers are two stores that fail together.
type servers [2]conformance.Server

func (s servers) Kill()   { s[0].Kill(); s[1].Kill() }
func (s servers) Start()  { s[0].Start(); s[1].Start() }
func (s servers) Pause()  { s[0].Pause(); s[1].Pause() }
func (s servers) Resume() { s[0].Resume(); s[1].Resume() }
