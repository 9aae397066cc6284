package sim

import (
	"flag"
	"io"
	"log/slog"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"
)

var (
	seed   = flag.Uint64("seed", 0, "sim: run this seed alone, and print its steps")
	within = flag.String("world", "", "sim: run in this world alone, or in these in turn (memcached,dynamodb)")
	lasts  = flag.Duration("for", 0, "sim: try seeds for that much processor time")
	from   = flag.Uint64("from", 1, "sim: the first seed")
	small  = flag.Bool("shrink", true, "sim: make the plan of a failure smaller")
)

func TestMain(m *testing.M) {
	flag.Parse()
	runtime.GOMAXPROCS(1)  // the scheduler has less to decide
	debug.SetGCPercent(-1) // nor does the collector interrupt a run
	debug.SetTraceback("all")
	growStacks()
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	os.Exit(m.Run())
}

// growStacks has all goroutines begin with a stack that is large enough for a script or a request of a client: most of them run one,
// and to grow took a sixth of a run of Redlock. The runtime begins with the average of what the collector has found last, so there
// are some goroutines that use that much, and wait for ever.
func growStacks() {
	forever := make(chan struct{})
	for range 100 {
		go func() {
			var used [12 << 10]byte
			<-forever
			runtime.KeepAlive(&used)
		}()
	}
	runtime.Gosched()
	runtime.GC()
}

// raced says that the race detector is on.
var raced bool

// few is how many seeds are tried unless -for or -seed says otherwise.
const few = 200

// TestSeeds runs the plans of seeds, one after the other, until one shows a violation.
func TestSeeds(t *testing.T) {
	if *seed > 0 {
		p := draw(*seed, worldOf(*seed))
		out := run(t, p)
		t.Logf("%v\n%s", p, out.trace(0))
		for _, v := range out.broken {
			t.Error(v)
		}
		return
	}
	if *lasts == 0 && os.Getenv("LOCKER_TEST_ALL") != "" {
		*lasts = time.Minute
	}
	begun, n, grants, calls := processorTime(), 0, 0, 0
	for s := *from; processorTime()-begun < *lasts || *lasts == 0 && n < few; s++ {
		p := draw(s, worldOf(s))
		out := run(t, p)
		n, grants, calls = n+1, grants+out.grants, calls+out.calls
		if len(out.broken) > 0 {
			fail(t, p, out)
			break
		}
		if n%10 == 0 {
			runtime.GC()
		}
	}
	t.Logf("%d seeds, %d acquisitions, %d grants, %v of processor time", n, calls, grants, processorTime().Round(time.Millisecond))
}

// worldOf returns the world of a seed; "": the plan's own.
func worldOf(seed uint64) string {
	all := strings.Split(*within, ",")
	return all[seed%uint64(len(all))]
}

// fail reports a violation: the seed, the smallest plan that shows it, and the end of its trace.
func fail(t *testing.T, p *plan, out outcome) {
	t.Errorf("seed %d (%s), after %v of processor time: %s", p.seed, p.world, processorTime().Round(time.Millisecond), out.broken[0])
	if *small {
		q := shrink(t, p, out.broken[0], 20*time.Second)
		if again := run(t, q); len(again.broken) > 0 {
			p, out = q, again
		}
	}
	t.Logf("%v\n%s", p, out.trace(80))
	for _, v := range out.broken {
		t.Log(v)
	}
	t.Logf("again: go test ./internal/sim -run Seeds -v -world %s -seed %d -messages", p.world, p.seed)
}

// The log of a shrunk plan is short enough to be read.
func TestShrink(t *testing.T) {
	p := draw(1, "memory")
	before := p.String()
	q := p.clone()
	for q.drop(0) {
	}
	if len(q.processes) > 0 || len(q.faults) > 0 || p.String() != before {
		t.Errorf("left:\n%v", q)
	}
}

// tokens of the memory driver go on from run to run.
var tokens = regexp.MustCompile(`token \d+|breaks \w+ \d+|after \d+|locker-sim\d+`)

// A seed decides nearly everything: most runs of a seed are the same, to the nanosecond.
func TestSameSeedSameRun(t *testing.T) {
	if raced {
		t.Skip("the race detector has goroutines go on in another order")
	}
	seeds := uint64(40)
	if testing.Short() {
		seeds = 20
	}
	same, all := uint64(0), uint64(0)
	for s := range seeds {
		switch draw(s+1, worldOf(s+1)).world {
		case "etcd", "sqlite":
			continue // gRPC writes more or less at once, as its goroutines happen to run; who gets SQLite's file first depends on them, too
		}
		all++
		first, second := run(t, draw(s+1, worldOf(s+1))), run(t, draw(s+1, worldOf(s+1)))
		a, b := tokens.ReplaceAllString(first.trace(0), ""), tokens.ReplaceAllString(second.trace(0), "")
		if a == b {
			same++
			continue
		}
		la, lb := strings.Split(a, "\n"), strings.Split(b, "\n")
		for i := range min(len(la), len(lb)) {
			if la[i] != lb[i] {
				t.Logf("seed %d differs from line %d of %d on:\n%s\n%s", s+1, i, len(la), la[i], lb[i])
				break
			}
		}
	}
	t.Logf("%d of %d seeds: twice the same run", same, all)
	if same < all/2 {
		t.Errorf("%d of %d seeds: twice the same run, want most", same, all)
	}
}
