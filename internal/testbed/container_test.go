package testbed

import (
	"strings"
	"testing"
	"time"
)

// newBox makes a Redis in a container, or skips the test.
func newBox(t *testing.T, opts ...Option) (*kind, *Server) {
	t.Helper()
	t.Parallel()
	if from, _ := source(); from != containers {
		t.Skip("LOCKER_TEST_SERVERS=containers runs it")
	}
	n := &node{opts: newOptions(opts)}
	c, err := newContainer(redis, n)
	if err != nil {
		t.Skip(err) // no engine, or no image
	}
	return redis, redis.server(&locked{instance: c}, n)
}

func TestContainer(t *testing.T) {
	k, s := newBox(t, Args("--appendonly", "yes"))
	s.own(t)
	s.begin()
	s.Wait()
	testServer(t, k, s)
}

// A container whose server ends at once fails the test with what it said.
func TestBrokenContainer(t *testing.T) {
	_, s := newBox(t, Args("--no-such-setting", "1"))
	tb := new(fakeTB)
	tb.run(func(tb testing.TB) {
		s.own(tb)
		s.begin()
		s.Wait()
	})
	if log := s.Log(); tb.failed == "" || !strings.Contains(log, "no-such-setting") {
		t.Errorf("failed with %q, its log is %q", tb.failed, log)
	}
	for _, c := range tb.cleanups {
		c()
	}
}

// A helper that is gone is an error of each request, at once.
func TestContainerWithoutHelper(t *testing.T) {
	_, s := newBox(t)
	c := s.inst.(*locked).instance.(*container)
	_ = c.in.Close()
	if err := s.inst.start(); err == nil {
		t.Error("a container without its helper starts")
	}
	if s.inst.(*locked).remove(); c.helper.ProcessState == nil {
		t.Error("the helper still runs")
	}
}

// Where there is no engine, that must be found out at once: every test that
// has no server asks.
func TestNoEngine(t *testing.T) {
	t.Setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
	var err error
	if took := Elapsed(func() { err = findEngine() }); err == nil || took > time.Second {
		t.Errorf("%v after %v", err, took)
	}
}
