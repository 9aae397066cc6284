package testbed

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"
)

// Ensemble is several servers of one kind that work together, private to one
// test. Each member can be killed, paused and started alone. An ensemble is
// always the testbed's own: addresses in the environment are passed over.
type Ensemble struct {
	Members []*Server

	tb    testing.TB
	kind  *kind
	url   func(addrs string) string
	leads func(ctx context.Context, addr string) (bool, error) // nil: it has no leader
}

// newEnsemble makes n servers and starts none. configure, if any, sees all
// nodes, with folders and ports, before the first is started.
func newEnsemble(tb testing.TB, k *kind, n int, opts []Option, configure func([]*node)) *Ensemble {
	tb.Helper()
	o := newOptions(opts)
	nodes := make([]*node, n)
	for i := range nodes {
		nodes[i] = &node{opts: o}
		if len(o.places) > 0 {
			nodes[i].place = o.places[i%len(o.places)]
		}
	}
	if configure != nil {
		if _, err := k.program(); err != nil {
			k.missing(tb, err)
		}
		for _, n := range nodes {
			if err := n.reserve(k); err != nil {
				tb.Fatalf("testbed: %s: %v", k.name, err)
			}
		}
		configure(nodes)
	}
	e := &Ensemble{tb: tb, kind: k, url: k.urlOf}
	for _, n := range nodes {
		s, err := k.launch(n)
		if err != nil {
			k.missing(tb, err)
		}
		s.own(tb)
		e.Members = append(e.Members, s)
	}
	return e
}

// begin starts all members at once and waits until each answers.
func (e *Ensemble) begin() {
	e.tb.Helper()
	for _, s := range e.Members {
		s.begin()
	}
	for _, s := range e.Members {
		s.Wait()
	}
}

// URL returns the URL of the whole ensemble.
func (e *Ensemble) URL() string { return e.url(strings.Join(e.Addrs(), ",")) }

// Addrs returns the members' addresses, in their order.
func (e *Ensemble) Addrs() []string {
	addrs := make([]string, len(e.Members))
	for i, s := range e.Members {
		addrs[i] = s.addr
	}
	return addrs
}

// Leader returns the member that leads. It waits for an election that is under
// way, and fails the test after a minute without one.
func (e *Ensemble) Leader() (leader *Server) {
	e.tb.Helper()
	if e.leads == nil {
		e.tb.Fatalf("testbed: %s has no leader", e.kind.name)
	}
	e.until("elect a leader", func(ctx context.Context) bool {
		leader = e.leader(ctx)
		return leader != nil
	})
	return leader
}

// leader asks each member once. A member that is down, or paused, costs a
// moment only.
func (e *Ensemble) leader(ctx context.Context) *Server {
	for _, s := range e.Members {
		try, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		leads, err := e.leads(try, s.addr)
		cancel()
		if err == nil && leads {
			return s
		}
	}
	return nil
}

// Followers returns the members other than the leader.
func (e *Ensemble) Followers() []*Server {
	e.tb.Helper()
	leader := e.Leader()
	return slices.DeleteFunc(slices.Clone(e.Members), func(s *Server) bool { return s == leader })
}

// Proxies returns one proxy before each member, for clients that keep to the
// addresses that they were given.
func (e *Ensemble) Proxies(tb testing.TB) *ProxySet {
	tb.Helper()
	set := &ProxySet{url: e.url}
	for _, s := range e.Members {
		set.Proxies = append(set.Proxies, s.Proxy(tb).Proxy)
	}
	return set
}

// until polls a condition of the whole ensemble, and fails the test when it
// does not come about.
func (e *Ensemble) until(what string, ok func(ctx context.Context) bool) {
	e.tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for !ok(ctx) {
		if ctx.Err() != nil {
			e.tb.Fatalf("testbed: the members of %s do not %s within %v", e.kind.name, what, startTimeout)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
