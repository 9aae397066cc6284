package testbed

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestContainer(t *testing.T) {
	if err := engine(); err != nil {
		t.Skip(err)
	}
	if _, err := docker(quick, "image", "inspect", redis.image.ref); err != nil {
		t.Skip("the image is not on this machine")
	}
	k := *redis
	k.find = func() (string, error) { return "", errors.New("hidden") }
	testServer(t, &k, k.private(t, Args("--appendonly", "yes")))
}

// Where there is no engine, that must be found out at once: every test that
// has no server asks.
func TestNoEngine(t *testing.T) {
	t.Setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
	t0 := time.Now()
	_, err := docker(2*time.Second, "version", "--format", "{{.Server.Version}}")
	if d := time.Since(t0); err == nil || d > time.Second {
		t.Errorf("%v after %v", err, d)
	}
	tb := new(fakeTB)
	none := &kind{name: "none", find: func() (string, error) { return "", errors.New("hidden") }}
	t.Setenv("LOCKER_TEST_REQUIRE", "")
	tb.run(func(tb testing.TB) { none.private(tb) })
	if !strings.Contains(tb.skipped, "a container will not do") {
		t.Errorf("skipped with %q", tb.skipped)
	}
}
