//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
	"github.com/lockerproject/locker/internal/retry"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestMain(m *testing.M) {
	testbed.RegisterChild("worker", badWorker)
	os.Exit(testbed.Main(m))
}

// badWorker crashes, or does not listen, as its task says.
func badWorker() {
	var t task
	_ = json.Unmarshal([]byte(os.Getenv(taskVariable)), &t)
	if strings.HasPrefix(t.ID, "w0") {
		os.Exit(3)
	}
	time.Sleep(time.Hour)
}

func newTestWitness(t *testing.T) *witness {
	t.Helper()
	figures, err := load(t.TempDir(), "test")
	if err != nil {
		t.Fatal(err)
	}
	w := newWitness(figures)
	w.patience, w.recovery, w.grace = time.Second, time.Second, time.Second
	return w
}

const sec = int64(time.Second)

// grants made from a few numbers: who, mode, token, asked, granted.
func grantOf(id string, mode int, token uint64, from, at int64) event {
	return event{Kind: granted, ID: id, Name: "a", Mode: mode, Token: token, From: from, At: at, Wait: true}
}

func endOf(id string, at int64) event { return event{Kind: released, ID: id, Name: "a", At: at} }

// TestWitness shows for each rule a history that breaks it, and one that nearly does.
func TestWitness(t *testing.T) {
	for _, c := range []struct {
		name   string
		want   string // empty: nothing is wrong
		events []event
	}{
		{"one after the other", "", []event{grantOf("1", 0, 1, 0, 1), endOf("1", 5), grantOf("2", 0, 2, 2, 6)}},
		{"at once", "two holders at once", []event{grantOf("1", 0, 1, 0, 1), endOf("1", 5), grantOf("2", 0, 2, 2, 4)}},
		{"reported late", "two holders at once", []event{grantOf("2", 0, 2, 2, 4), grantOf("1", 0, 1, 0, 1), endOf("1", 5)}},
		{"readers", "", []event{grantOf("1", -1, 1, 0, 1), grantOf("2", -1, 2, 0, 2), endOf("1", 9), endOf("2", 9)}},
		{"reader and writer", "two holders at once", []event{grantOf("1", -1, 1, 0, 1), grantOf("2", 0, 2, 0, 3), endOf("1", 4)}},
		{"permits", "", []event{grantOf("1", 2, 1, 0, 1), grantOf("2", 2, 2, 0, 2), endOf("1", 3), grantOf("3", 2, 3, 0, 4), endOf("2", 9)}},
		{"a permit too many", "more holders than permits", []event{grantOf("1", 2, 1, 0, 1), grantOf("2", 2, 2, 0, 2), grantOf("3", 2, 3, 0, 4), endOf("2", 9), endOf("1", 5)}},
		{"one token for two", "two grants with one token", []event{grantOf("1", -1, 1, 0, 1), grantOf("2", -1, 1, 0, 1)}},
		{"a token that falls", "a token that is not greater", []event{grantOf("1", -1, 7, 0, 1), endOf("1", 2), grantOf("2", -1, 6, 3, 4)}},
		{"readers that overtake", "", []event{grantOf("1", -1, 7, 0, 1), grantOf("2", -1, 6, 0, 4)}},
		{"a writer that is overtaken", "arrives after one with a greater token", []event{grantOf("1", 0, 7, 0, 1), grantOf("2", 0, 6, 0, 4)}},
		{"a wait while another holds", "", []event{grantOf("1", 0, 1, 0, 1), endOf("1", 60*sec), grantOf("2", 0, 2, 2, 60*sec+1)}},
		{"a wait for nobody", "nobody held the name", []event{grantOf("1", 0, 1, 0, 1), endOf("1", 2), grantOf("2", 0, 2, 2, 60*sec)}},
		{"a wait in vain", "nobody held the name", []event{{Kind: refused, Name: "a", At: 60 * sec, Wait: true, Why: "no"}}},
		{"a promise", "something", []event{{Kind: broken, Why: "something"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTestWitness(t)
			for _, e := range c.events {
				w.observe(e)
			}
			w.sweep(100 * sec)
			found := strings.Join(w.totals.Violations, "\n")
			if c.want == "" && found != "" || !strings.Contains(found, c.want) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}

// TestExcuse is about the time after a fault that breaks exclusion, and not tokens.
func TestExcuse(t *testing.T) {
	w := newTestWitness(t)
	w.begin("restart", true)()
	at := now()
	w.observe(grantOf("1", 0, 1, at-9, at))
	w.observe(grantOf("2", 0, 2, at-9, at+1))
	w.observe(endOf("1", at+2))
	if n := len(w.totals.Violations); n != 0 || w.totals.Excused != 1 {
		t.Errorf("%d violations and %d excused, want 0 and 1", n, w.totals.Excused)
	}
	w.observe(grantOf("3", 0, 1, at+3, at+4))
	if n := len(w.totals.Violations); n == 0 {
		t.Error("a token that falls was excused")
	}
}

// TestForgotten is about grants that the witness remembers only by their tokens.
func TestForgotten(t *testing.T) {
	w := newTestWitness(t)
	w.observe(grantOf("1", 0, 7, 0, 1))
	w.observe(endOf("1", 2))
	w.sweep(now() + 2*int64(remembered))
	if len(w.names["a"].holds) != 0 {
		t.Fatal("it is not forgotten")
	}
	w.observe(grantOf("2", 0, 7, 3, 4))
	if len(w.totals.Violations) != 1 {
		t.Errorf("violations %q, want one", w.totals.Violations)
	}
}

// A liar is a driver that breaks a rule, over a store that keeps all of them.
type liar struct {
	driver.Driver
	acquire func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error)
}

func (l liar) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return l.acquire(ctx, l.Driver, r)
}

// received decodes what a worker writes, one event at a time.
type received struct{ w *witness }

func (r received) Write(line []byte) (int, error) {
	var e event
	err := json.NewDecoder(bytes.NewReader(line)).Decode(&e)
	r.w.observe(e)
	return len(line), err
}

// TestLiars runs the workers on drivers that lie, until that is found.
func TestLiars(t *testing.T) {
	honest := func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
		return d.Acquire(ctx, r)
	}
	for _, c := range []struct {
		name, want string
		acquire    func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error)
	}{
		{"honest", "", honest},
		{"twice", "two holders at once", func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
			r.Shared = true
			return d.Acquire(ctx, r)
		}},
		{"limit", "more holders than permits", func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
			if r.Limit > 0 {
				r.Limit++
			}
			return d.Acquire(ctx, r)
		}},
		{"tokens", "a token that is not greater", func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
			g, err := d.Acquire(ctx, r)
			g.Token = ^g.Token
			return g, err
		}},
		{"refuses", "which nobody else uses", func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
			if !r.Wait {
				return driver.Grant{}, driver.ErrNotAcquired
			}
			return d.Acquire(ctx, r)
		}},
		{"fails", "no answer to an acquisition", func(context.Context, driver.Driver, driver.Request) (driver.Grant, error) {
			return driver.Grant{}, errors.New("something")
		}},
		{"forgets", "nobody held the name", func(ctx context.Context, d driver.Driver, r driver.Request) (driver.Grant, error) {
			if r.Wait {
				<-ctx.Done()
				return driver.Grant{}, context.Cause(ctx)
			}
			return d.Acquire(ctx, r)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			found := runLiar(t, c.acquire, c.want != "")
			if c.want == "" && found != "" || !strings.Contains(found, c.want) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}

// runLiar returns the violations, after a second or when there are any.
func runLiar(t *testing.T, acquire func(context.Context, driver.Driver, driver.Request) (driver.Grant, error), lies bool) string {
	w := newTestWitness(t)
	long := time.Second
	if lies {
		long = time.Minute
	}
	w.patience = 50 * time.Millisecond
	if !lies {
		w.patience = time.Minute // the machine may be busy
	}
	ctx, cancel := context.WithTimeout(t.Context(), long)
	defer cancel()
	store := memory.New()
	defer store.Close()
	done := make(chan error)
	for _, id := range []string{"x", "y"} {
		go func() {
			done <- task{ID: id, Threads: 6, Groups: 1, TTLs: []time.Duration{time.Second}}.run(ctx, received{w}, func(o ...locker.ClientOption) (*locker.Client, error) {
				return locker.New(liar{store.Join(), acquire}, o...), nil
			})
		}()
	}
	violations := func() string {
		w.mu.Lock()
		defer w.mu.Unlock()
		return strings.Join(w.totals.Violations, "\n")
	}
	for ctx.Err() == nil && (violations() == "" || !lies) {
		retry.Sleep(ctx, 50*time.Millisecond, nil)
		w.sweep(now() + int64(settle))
	}
	cancel()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	return violations()
}

// A stubborn lease does not end.
type stubborn struct{ deadline time.Time }

func (stubborn) Err() error            { return nil }
func (s stubborn) Deadline() time.Time { return s.deadline }

func TestDeadline(t *testing.T) {
	for past, want := range map[time.Duration]int{time.Second: 1, -time.Minute: 0} {
		w := newTestWitness(t)
		worker := &worker{out: json.NewEncoder(received{w})}
		worker.look(t.Context(), stubborn{time.Now().Add(-past)}, event{ID: "1", Name: "a", At: now()}, 0)
		if n := len(w.totals.Violations); n != want {
			t.Errorf("%d violations with a deadline that was %v ago, want %d", n, past, want)
		}
	}
}

// TestProcesses runs workers that do not do what they have to.
func TestProcesses(t *testing.T) {
	for i, want := range []string{"crashed", "did not end"} {
		w := newTestWitness(t)
		run := &soak{rig: &rig{}, bed: &testbed.Program{Broken: func(why string) { t.Error(why) }}, crew: make([]atomic.Pointer[testbed.Process], 2), witness: w, ending: time.Millisecond}
		ctx, cancel := context.WithCancel(t.Context())
		if i == 1 {
			cancel()
		}
		run.runOne(ctx, i, task{ID: []string{"w0.0", "w1.0"}[i]})
		cancel()
		if found := strings.Join(w.totals.Violations, "\n"); !strings.Contains(found, want) {
			t.Errorf("found %q, want %q", found, want)
		}
	}
}

func TestLeft(t *testing.T) {
	c, err := locker.Open(t.Context(), "memory://soak-left")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	w := newTestWitness(t)
	w.recovery = 0
	run := &soak{rig: &rig{urls: []string{"memory://soak-left"}}, groups: 2, witness: w}
	for want := range 2 {
		if err := run.checkLeft(); err != nil {
			t.Fatal(err)
		}
		if n := len(w.totals.Violations); n != want {
			t.Errorf("%d violations with %d locks held: %q", n, want, w.totals.Violations)
		}
		if _, err := c.Acquire(t.Context(), inGroup(names[want].name, want)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTotals saves figures, adds to them, and reports them.
func TestTotals(t *testing.T) {
	dir := t.TempDir()
	for run := 1; run <= 2; run++ {
		f, err := load(dir, "test")
		if err != nil {
			t.Fatal(err)
		}
		f.Runs++
		w := newWitness(f)
		for range 100 {
			w.observe(event{Kind: granted, ID: "1", Name: "a", From: 0, At: int64(3 * time.Millisecond), Token: 1})
			w.names = map[string]*queue{}
		}
		w.observe(event{Kind: reason, Why: `lock "a" of 127.0.0.1:99: 3 s late`})
		w.begin("server killed", false)()
		if err := w.save(dir); err != nil {
			t.Fatal(err)
		}
	}
	report, err := os.ReadFile(dir + "/report.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"in 2 runs", "200: 200 exclusive", "p50 3ms, p99 3ms", "2 lock … of … … s late, without faults", "2 server killed"} {
		if !strings.Contains(string(report), want) {
			t.Errorf("the report is without %q:\n%s", want, report)
		}
	}
	if _, err := load(dir, "another"); err == nil {
		t.Error("the totals of one store were taken for another's")
	}
}

// TestPlace cuts the way from a namespace to the workers.
func TestPlace(t *testing.T) {
	b := &testbed.Program{Broken: func(why string) { t.Error(why) }}
	defer b.End()
	places, err := makePlaces(b, 2)
	if err != nil {
		t.Skip("this machine has no network namespaces for us: ", err)
	}
	l, err := net.Listen("tcp", places[0].clients()+":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	connects := func(p place) bool {
		dial := "exec 3<>/dev/tcp/" + strings.Replace(l.Addr().String(), ":", "/", 1)
		return exec.Command("ip", "netns", "exec", p.space, "timeout", "2", "bash", "-c", dial).Run() == nil
	}
	run := &soak{rig: &rig{places: places}, bed: b}
	for range 2 {
		if !connects(places[0]) || !connects(places[1]) {
			t.Fatal("there is no way")
		}
		heal := run.part([][2]string{{places[0].address, places[0].clients()}})
		if connects(places[0]) || !connects(places[1]) {
			t.Error("a way that was cut is open, or another was cut")
		}
		heal()
	}
}

// TestDisk fills the disk of the servers.
func TestDisk(t *testing.T) {
	t.Setenv("TMPDIR", os.TempDir()) // restores it
	b := &testbed.Program{Broken: func(why string) { t.Error(why) }}
	defer b.End()
	d, err := makeDisk(b)
	if err != nil {
		t.Skip("this machine has no file system for us: ", err)
	}
	write := func() error { return os.WriteFile(filepath.Join(os.TempDir(), "file"), make([]byte, 1<<20), 0o600) }
	if err := d.fill(); err != nil {
		t.Fatal(err)
	}
	if err := write(); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("a write to a full disk: %v, want %v", err, syscall.ENOSPC)
	}
	if err := errors.Join(d.free(), write()); err != nil {
		t.Errorf("a write to a disk with space: %v", err)
	}
}
