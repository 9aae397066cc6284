package sim

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

var (
	only   = flag.String("mutant", "", "sim: try only the mutants whose names match this regular expression")
	effort = flag.Duration("effort", 2*time.Minute, "sim: for how much processor time each mutant is looked for")
)

// mutant is a fault, put back into the code. Most are faults that this project has had.
type mutant struct {
	name     string
	file     string // from the root of the module
	old, new string
	in       string // the worlds in which it can be seen; empty: those of its file
	unseen   string // why the simulation cannot find it; empty: it has to
}

var mutants = []mutant{
	{
		name: "core: a cancelled wait leaves its ticket", file: "acquisition.go",
		old: "\t\ta.c.removals.orphan(a.req.Hold(0), !a.sure)\n\t}\n\treturn nil, a.neverHeld(err)", new: "\t}\n\treturn nil, a.neverHeld(err)",
	},
	{
		name: "core: a release that was not answered is not repeated", file: "removal.go", in: "bank",
		old: "\t\trm.retries = append(rm.retries, r)\n", new: "",
	},
	{
		name: "core: validity counts from the answer", file: "lease.go",
		old: "if until := asked.Add(valid); until.After(l.validUntil) {",
		new: "if until := now.Add(valid); until.After(l.validUntil) {",
	},
	{
		name: "core: a renewal that failed is not repeated", file: "renewal.go", in: "bank",
		old: "l.renewAt = now.Add(min(max(l.ttl/30, 5*time.Millisecond), renewRetryMost))", new: "l.renewAt = now.Add(l.ttl)",
	},
	{
		name: "core: observers run in the goroutine that renews", file: "renewal.go", in: "bank",
		old: "ls.mu.Unlock()\n\tl.deliverLater()", new: "ls.mu.Unlock()\n\tl.deliver()",
	},
	{
		name: "core: the cause of a caller's context is taken for the store's answer", file: "errors.go",
		old: "return errors.New(cause.Error())", new: "return cause",
	},
	{
		name: "core: each name of a group has the whole wait limit", file: "acquisition.go",
		old: "case !began.IsZero() && a.r.wait > 0:", new: "case !began.IsZero() && false:",
	},
	{
		name: "core: a minimum hold is not kept", file: "leases.go",
		old: "if end := l.minHoldEnd(); end.After(now) {", new: "if end := l.minHoldEnd(); end.After(now) && false {",
	},
	{
		name: "core: the first handle that is released ends the lease", file: "leases.go",
		old: "case len(l.handles) == 1:", new: "case len(l.handles) >= 1:",
	},
	{
		name: "core: Close does not end waiting calls", file: "call.go",
		old: "c.unlink = context.AfterFunc(c.core.tasks.live, func() { c.cancel(ErrClosed) })", new: "c.unlink = func() bool { return true }",
	},
	{
		name: "driver: a semaphore has one permit too many", file: "driver/rule.go",
		old: "granted[i] = t.Limit == 0 || i < t.Limit", new: "granted[i] = t.Limit == 0 || i <= t.Limit",
	},
	{
		name: "casqueue: a ticket is taken for dead too early", file: "driver/internal/casqueue/observe.go",
		old: "life + life/20 + 100*time.Millisecond", new: "life / 2",
	},
	{
		name: "casqueue: a release is answered while an unanswered write may still be done", file: "driver/internal/casqueue/writer.go",
		old: "next, changed := before.clone(), f.unanswered", new: "next, changed := before.clone(), false",
		unseen: "the write has to come after the release of its ticket, and before any other change",
	},
	{
		name: "casqueue: an older reading overtakes a newer one", file: "driver/internal/casqueue/reading.go",
		old: "if begun.Before(f.notOlderThan) {", new: "if false {",
		unseen: "memcached has one connection, which keeps the order",
	},
	{
		name: "casqueue: nobody is notified", file: "driver/internal/casqueue/notify.go",
		old: "!waits && process != e.process", new: "!waits && process != e.process && false",
	},
	{
		name: "memcached: a version outlives the connection", file: "driver/memcached/store.go",
		old: "if read.Number != 0 && read.Era != n.era {", new: "if false {",
		unseen: "the numbers of two lives of the server have to meet",
	},
	{
		name: "consul: a deposed leader is believed that a ticket is gone", file: "driver/consul/watch.go",
		old: "return index >= t.Number", new: "return true",
	},
	{
		name: "consul: a deposed leader is believed that a holder has lost", file: "driver/consul/request.go",
		old: "Txn(reads, s.exact(ctx))", new: "Txn(reads, s.read(ctx))",
		unseen: "the old leader has to know the session's notice key, and not a ticket from before it",
	},
	{
		name: "consul: an unanswered put counts as refused", file: "driver/consul/store.go",
		old: "if err == nil || unknown(err) {\n\t\treturn err\n\t}\n\treturn kvqueue.Refused(err)", new: "return kvqueue.Refused(err)",
	},
	{
		name: "consul: a withdrawal leaves no tombstone", file: "driver/consul/store.go",
		old: "lockOp(s.keys.tombstone(t.Session, t.ID), t.Session, nil), keyOp(api.KVDelete, t.Key))", new: "keyOp(api.KVDelete, t.Key))",
	},
}

// concern are the worlds in which a fault can be seen, by the beginning of its file's name:
// the first that fits.
var concern = []struct{ files, worlds string }{
	{"driver/memory/", "memory,bank"},
	{"driver/rule.go", "memcached"},
	{"driver/memcached/", "memcached"},
	{"driver/dynamodb/", "dynamodb"},
	{"driver/nats/", "nats"},
	{"driver/consul/", "consul"},
	{"driver/internal/casqueue/", "memcached,dynamodb,nats"},
	{"driver/etcd/", "etcd"},
	{"driver/zookeeper/", "zookeeper"},
	{"driver/internal/sqlqueue/", "postgres"},
	{"driver/postgres/", "postgres"},
	{"driver/mysql/", "mysql"},
	{"driver/sqlite/", "sqlite"},
	{"driver/redis/", "redis"},
	{"driver/internal/handoff/", "redis"},
	{"driver/redlock/", "redlock"},
	{"driver/internal/redisqueue/lua/redlock_", "redlock"},
	{"driver/internal/redisqueue/lua/", "redis"},
	{"driver/internal/redisqueue/", "redis,redlock"},
	{"driver/internal/kvqueue/", "consul,etcd"},
	{"compose/fallback", "fallback"},
	{"compose/", "all"},
	{"", "bank,bank,redis"}, // of the core: the first is the cheapest, and keeps to the contract
}

// worlds returns the worlds in which the mutant is looked for.
func (m *mutant) worlds() string {
	if m.in != "" {
		return m.in
	}
	for _, c := range concern {
		if strings.HasPrefix(m.file, c.files) {
			return c.worlds
		}
	}
	panic("sim: no world for " + m.file)
}

// found is what TestSeeds prints of a violation.
var found = regexp.MustCompile(`seed (\d+) \((\w+)\), after (\S+) of processor time: \S+ (.*)`)

// TestMutants puts faults back, one after the other, and looks for them. It prints the
// table of README.md.
func TestMutants(t *testing.T) {
	if *only == "" {
		t.Skip("takes up to two minutes for each mutant: `make mutants`, or -mutant with a part of a name")
	}
	wanted := regexp.MustCompile(*only)
	files, numbers := switched(t, mutants)
	together := compile(t, overlay(t, files))
	for _, m := range mutants {
		if !wanted.MatchString(m.name) {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			mutated, n := together, numbers[m.name]
			if n == 0 {
				mutated = compile(t, overlay(t, m.files(t)))
			}
			f, out := m.look(t, mutated, n, together)
			switch {
			case f != nil:
				fmt.Printf("| %s | %s | %s | %s | %s |\n", m.name, f[1], f[2], f[3], kindOf(f[4]))
			case m.unseen != "":
				fmt.Printf("| %s | – | | | not found: %s |\n", m.name, m.unseen)
			default:
				fmt.Printf("| %s | – | | | NOT FOUND |\n", m.name)
				t.Errorf("not found within %v:\n%.2000s", *effort, out)
			}
		})
	}
}

// TestMutantsFit finds, without running a mutant, that the code which it replaces is still there.
func TestMutantsFit(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) { m.files(t) })
	}
}

// look looks for a mutant: for a seed that shows a violation with it, and none without.
func (m *mutant) look(t *testing.T, mutated string, n int, healthy string) (f []string, out string) {
	left, first := *effort, uint64(1)
	for left > 0 {
		out = simulate(t, mutated, n, m.worlds(), "-from", strconv.FormatUint(first, 10), "-for", left.String())
		if f = found.FindStringSubmatch(out); f == nil {
			if i := strings.Index(out, "panic: "); i >= 0 { // of a goroutine of the code
				line, _, _ := strings.Cut(out[i:], "\n")
				return []string{"", "?", "?", "?", line}, out
			}
			return nil, out
		}
		if without := simulate(t, healthy, 0, f[2], "-seed", f[1], "-test.count", "3"); !strings.Contains(without, "FAIL") {
			took, _ := time.ParseDuration(f[3])
			f[3] = (*effort - left + took).Round(100 * time.Millisecond).String()
			return f, out
		}
		t.Logf("seed %s shows something without the mutant, too: %s", f[1], f[4])
		took, _ := time.ParseDuration(f[3])
		left -= took
		first, _ = strconv.ParseUint(f[1], 10, 64)
		first++
	}
	return nil, out
}

// files returns the one file that the mutant changes, by its path.
func (m *mutant) files(t *testing.T) map[string]string {
	path := filepath.Join("../..", m.file)
	text, err := os.ReadFile(path) //nolint:gosec // our own
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		t.Fatalf("%s: %s has changed: this is there %d times:\n%s", m.name, m.file, n, m.old)
	}
	return map[string]string{path: strings.Replace(string(text), m.old, m.new, 1)}
}

// overlay writes files, and the list of them for the go command.
func overlay(t *testing.T, files map[string]string) string {
	dir, replace := t.TempDir(), make(map[string]string)
	write := func(name, text string) (path string) {
		path = filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for path, text := range files {
		whole, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		replace[whole] = write(fmt.Sprintf("%d.go", len(replace)), text)
	}
	list, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	return write("overlay.json", string(list))
}

// compile builds the test with changed files.
func compile(t *testing.T, overlay string) (binary string) {
	binary = filepath.Join(t.TempDir(), "sim.test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", binary, ".") //nolint:gosec // the arguments are ours
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

// simulate runs TestSeeds in a process of its own, with the mutant of a number, and returns what it prints.
func simulate(t *testing.T, binary string, n int, worlds string, args ...string) string {
	args = append([]string{"-test.run", "^TestSeeds$", "-test.v", "-shrink=false", "-world", worlds}, args...)
	cmd := exec.CommandContext(t.Context(), binary, args...) //nolint:gosec // the arguments are ours
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", switchEnv, n))
	out, _ := cmd.CombinedOutput()
	return string(out)
}
