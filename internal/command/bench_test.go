package command_test

import (
	"context"
	"os"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/internal/command"
	"github.com/lockerproject/locker/internal/commandtest"
	"github.com/lockerproject/locker/internal/testbed"
)

type benchLine struct {
	Store       string
	Version     string
	Uncontended struct {
		Seconds float64
		Cycles  int
		Rate    float64 `json:"cycles_per_second"`
		P50     float64 `json:"cycle_p50_seconds"`
		P99     float64 `json:"cycle_p99_seconds"`
	}
	Contended struct {
		Clients int
		Seconds float64
		Grants  int
		Rate    float64 `json:"grants_per_second"`
		P50     float64 `json:"handoff_p50_seconds"`
		P99     float64 `json:"handoff_p99_seconds"`
		Jain    float64 `json:"jain_index"`
	}
}

func TestBench(t *testing.T) {
	onRedisAndEtcd(t, func(t *testing.T, url string) {
		r := on(t, url, "bench", "--json", "--duration", "1s", "--clients", "3").Run()
		if r.Code != 0 || r.ErrOut != "" {
			t.Fatal(r)
		}
		b := decode[benchLine](t, r.Out)[0]
		u, c := b.Uncontended, b.Contended
		if u.Seconds < 0.5 || u.Cycles < 1 || u.Rate <= 0 || u.P50 <= 0 || u.P99 < u.P50 ||
			c.Clients != 3 || c.Grants < 1 || c.Rate <= 0 || c.P50 <= 0 || c.P99 < c.P50 || c.Jain < 0.5 || c.Jain > 1.0001 {
			t.Error(r)
		}
		r = on(t, url, "bench", "--duration", "500ms", "--clients", "2").Run()
		has(t, r, r.Out, "uncontended  1 ", " cycles/s ", "contended    2 ", " grants/s ", " a hand-off ")
		if r := on(t, url, "list").Run(); r.Out != "" {
			t.Error("something stayed behind: ", r)
		}
	})
}

// TestBenchLeavesNothing counts what a store of its own holds, also after Ctrl-C.
func TestBenchLeavesNothing(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	c := goredis.NewClient(&goredis.Options{Addr: srv.Addr()})
	defer c.Close()
	if r := on(t, srv.URL(), "ping").Run(); r.Code != 0 { // makes what is kept for ever
		t.Fatal(r)
	}
	before := c.Keys(t.Context(), "*").Val()
	if r := on(t, srv.URL(), "bench", "--duration", "200ms").Run(); r.Code != 0 {
		t.Error(r)
	}
	cmd := on(t, srv.URL(), "bench", "--duration", "1m").Start()
	commandtest.Eventually(t, "it works", func() bool { return len(c.Keys(t.Context(), "*").Val()) > len(before) })
	cmd.Signal(os.Interrupt)
	if r := cmd.Wait(); r.Code != 128+2 || r.Out+r.ErrOut != "" {
		t.Error(r)
	}
	// A request that the end of the command has cut off leaves a tombstone, for seconds.
	commandtest.Eventually(t, "nothing is left", func() bool { return len(c.Keys(t.Context(), "*").Val()) == len(before) })
}

func TestBenchStoreGoesDown(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t, testbed.Faults())
	c := goredis.NewClient(&goredis.Options{Addr: srv.Addr()})
	defer c.Close()
	cmd := on(t, srv.URL(), "bench", "--duration", "1m").Start()
	commandtest.Eventually(t, "it works", func() bool { return len(c.Keys(context.WithoutCancel(t.Context()), "*").Val()) > 0 })
	srv.Kill()
	if r := cmd.Wait(); r.Code != command.ExitUnavailable || r.Out != "" || r.Took > 30*time.Second {
		t.Error(r)
	}
}

// At a terminal there is a sign of life before the figures.
func TestBenchOnTerminal(t *testing.T) {
	onRedisAndEtcd(t, func(t *testing.T, url string) {
		term := commandtest.NewTerminal(t)
		cmd := term.Attach(on(t, url, "bench", "--duration", "3s", "--clients", "2")).Start()
		term.WaitFor("measuring for 3s")
		if r := cmd.Wait(); r.Code != 0 {
			t.Fatal(r, term.Shown())
		}
		term.WaitFor("grants/s")
	})
}

func TestBenchWrongUse(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--duration", "0s"}, {"--duration", "x"}, {"--clients", "1"}, {"--clients", "100000"}, {"x"}} {
		if r := on(t, "redis://127.0.0.1:1", append([]string{"bench"}, args...)...).Run(); r.Code != command.ExitUsage {
			t.Error(r)
		}
	}
}
