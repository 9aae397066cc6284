package testbed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { os.Exit(Main(m)) }

// need ends a test of the testbed where the server is not installed.
func need(t *testing.T, k *kind) {
	t.Helper()
	if _, err := k.program(); err != nil {
		k.missing(t, err)
	}
}

func answers(k *kind, addr string) error {
	ctx, cancel := context.WithTimeout(t0, 10*time.Second)
	defer cancel()
	return k.ready(ctx, addr, options{})
}

var t0 = context.Background()

// silent asks with a short limit, and expects no answer.
func silent(t *testing.T, k *kind, addr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t0, 100*time.Millisecond)
	defer cancel()
	if err := k.ready(ctx, addr, options{}); err == nil {
		t.Fatalf("%s at %s answers", k.name, addr)
	}
}

func alive(t *testing.T, k *kind, addr string) {
	t.Helper()
	if err := answers(k, addr); err != nil {
		t.Fatalf("%s at %s: %v", k.name, addr, err)
	}
}

// testServer does to one server all that can be done to it.
func testServer(t *testing.T, k *kind, s *Server) {
	t.Helper()
	if !s.CanFault() {
		t.Fatal("a private server cannot be broken")
	}
	if !strings.Contains(s.URL(), s.Addr()) {
		t.Errorf("URL %q is without the address %s", s.URL(), s.Addr())
	}
	alive(t, k, s.Addr())

	s.Kill()
	s.Kill() // does nothing
	if c, err := net.Dial("tcp", s.Addr()); err == nil {
		_ = c.Close()
		t.Fatal("a killed server accepts connections")
	}
	s.Start()
	alive(t, k, s.Addr())

	s.Pause()
	silent(t, k, s.Addr())
	s.Resume()
	alive(t, k, s.Addr())

	p := s.Proxy(t)
	if !strings.Contains(p.URL(), p.Addr()) {
		t.Errorf("URL %q is without the proxy's address %s", p.URL(), p.Addr())
	}
	alive(t, k, p.Addr())
	p.Cut()
	silent(t, k, p.Addr())
	p.Heal()
	alive(t, k, p.Addr())
	p.Refuse()
	if c, err := net.Dial("tcp", p.Addr()); err == nil {
		_ = c.Close()
		t.Fatal("a refusing proxy accepts connections")
	}
	p.Heal()
	alive(t, k, p.Addr())

	s.Pause()
	s.Kill() // what is paused can be killed
	s.Restart()
	alive(t, k, s.Addr())
}

// fakeTB stands in for a test where there is none, or where one is to fail.
type fakeTB struct {
	testing.TB
	skipped, failed string
	cleanups        []func()
}

var errFake = errors.New("the fake test ended")

func (f *fakeTB) Helper()             {}
func (f *fakeTB) Cleanup(c func())    { f.cleanups = append(f.cleanups, c) }
func (f *fakeTB) Logf(string, ...any) {}
func (f *fakeTB) Failed() bool        { return f.failed != "" }
func (f *fakeTB) Skipf(format string, args ...any) {
	f.skipped = fmt.Sprintf(format, args...)
	panic(errFake)
}

func (f *fakeTB) Fatalf(format string, args ...any) {
	f.failed = fmt.Sprintf(format, args...)
	panic(errFake)
}
func (f *fakeTB) Fatal(args ...any) { f.Fatalf("%s", fmt.Sprint(args...)) }

// run calls f as a test would be run, to its end by Skip or Fatal.
func (f *fakeTB) run(test func(testing.TB)) {
	defer func() {
		if r := recover(); r != nil && r != errFake { //nolint:errorlint // the very value
			panic(r)
		}
	}()
	test(f)
}

func TestNoServer(t *testing.T) {
	none := &kind{name: "none", find: func() (string, error) { return lookup([]string{"no-such-server"}) }}
	for _, c := range []struct{ require, skipped, failed string }{
		{"", "`make test`", ""},
		{"0", "`make test`", ""},
		{"1", "", "scripts/install-servers.sh none"},
	} {
		t.Setenv("LOCKER_TEST_REQUIRE", c.require)
		tb := new(fakeTB)
		tb.run(func(tb testing.TB) { none.private(tb) })
		if !strings.Contains(tb.skipped, c.skipped) || (tb.skipped == "") != (c.skipped == "") {
			t.Errorf("%+v: skipped with %q", c, tb.skipped)
		}
		if !strings.Contains(tb.failed, c.failed) || (tb.failed == "") != (c.failed == "") {
			t.Errorf("%+v: failed with %q", c, tb.failed)
		}
	}
}

func TestExternalServer(t *testing.T) {
	s := SharedRedis(t)
	t.Setenv("LOCKER_TEST_REDIS_URL", "redis://"+s.Addr()+"/3")
	tb := new(fakeTB)
	tb.run(func(tb testing.TB) {
		e := SharedRedis(tb)
		if e.Addr() != s.Addr() || !strings.HasSuffix(e.URL(), "/3") || e.CanFault() {
			t.Errorf("got %s, %s, CanFault %v", e.Addr(), e.URL(), e.CanFault())
		}
		e.Kill()
	})
	if !strings.Contains(tb.failed, "not this test's own") {
		t.Errorf("Kill of somebody else's server: %q", tb.failed)
	}
	if own := Redis(t, Faults()); own.Addr() == s.Addr() || !own.CanFault() {
		t.Error("Faults did not bring a server of our own")
	}
	t.Setenv("LOCKER_TEST_REDIS_URL", "redis://u:secret@%zz")
	tb = new(fakeTB)
	tb.run(func(tb testing.TB) { SharedRedis(tb) })
	if tb.failed == "" || strings.Contains(tb.failed, "secret") {
		t.Errorf("a malformed URL: %q", tb.failed)
	}
}

func TestBrokenServer(t *testing.T) {
	need(t, redis)
	tb := new(fakeTB)
	tb.run(func(tb testing.TB) { Redis(tb, Args("--no-such-setting", "1")) })
	if !strings.Contains(tb.failed, "no-such-setting") {
		t.Errorf("failed with %q, not with the server's log", tb.failed)
	}
	for _, c := range tb.cleanups {
		c()
	}
}

// testEnsemble breaks the leader of an ensemble, twice.
func testEnsemble(t *testing.T, k *kind, start func() *Ensemble) {
	t.Helper()
	need(t, k)
	Nightly(t, "run it after a change to how clusters are started")
	t.Parallel()
	begin := time.Now()
	e := start()
	first := e.Leader()
	t.Logf("started in %v", time.Since(begin))
	if got := len(e.Followers()); got != len(e.Members)-1 {
		t.Errorf("%d followers of %d members", got, len(e.Members))
	}
	if strings.Count(e.URL(), ",") != len(e.Members)-1 || strings.Count(e.Proxies(t).URL(), ",") != len(e.Members)-1 {
		t.Errorf("URL %s", e.URL())
	}
	begin = time.Now()
	first.Kill()
	second := e.Leader()
	if second == first {
		t.Fatal("a dead member leads")
	}
	t.Logf("after a kill another led in %v", time.Since(begin))
	first.Start()

	begin = time.Now()
	second.Pause()
	if e.Leader() == second {
		t.Fatal("a paused member leads")
	}
	t.Logf("after a pause another led in %v", time.Since(begin))
	second.Resume()
	second.Wait()
}
