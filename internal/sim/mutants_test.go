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
	only   = flag.String("mutant", "", "sim: try only the mutants whose names contain this")
	effort = flag.Duration("effort", time.Minute, "sim: how long each mutant is looked for")
)

// mutant is a fault, put back into the code. Most are faults that this project has had.
type mutant struct {
	name     string
	file     string // from the root of the module
	old, new string
	unseen   string // why the simulation cannot find it; empty: it has to
}

var mutants = []mutant{
	{
		name: "core: a cancelled wait leaves its ticket", file: "acquisition.go",
		old: "\t\ta.c.removals.orphan(req.Hold(0), !a.sure)\n\t}\n\treturn nil, a.neverHeld(err)", new: "\t}\n\treturn nil, a.neverHeld(err)",
	},
	{
		name: "core: a release that was not answered is not repeated", file: "removal.go",
		old: "\t\trm.retries = append(rm.retries, r)\n", new: "",
	},
	{
		name: "core: validity counts from the answer", file: "lease.go",
		old: "if until := asked.Add(length - l.core.marginOf(length)); until.After(l.validUntil) {",
		new: "if until := now.Add(length - l.core.marginOf(length)); until.After(l.validUntil) {",
	},
	{
		name: "core: a renewal that failed is not repeated", file: "renewal.go",
		old: "l.renewAt = now.Add(min(max(l.ttl/30, 5*time.Millisecond), renewRetryMost))", new: "l.renewAt = now.Add(l.ttl)",
		unseen: "a loss is excused while a fault lasts",
	},
	{
		name: "core: observers run in the loop that renews", file: "leases.go",
		old: "cause)\n\tl.deliverLater()", new: "cause)\n\tl.deliver()",
	},
	{
		name: "core: the cause of a caller's context is taken for the store's answer", file: "errors.go",
		old: "return errors.New(cause.Error())", new: "return cause",
	},
	{
		name: "core: each name of a group has the whole wait limit", file: "options.go",
		old: "if at, ok := groupBegun(ctx); ok {", new: "if at, ok := groupBegun(ctx); ok && false {",
	},
	{
		name: "core: a minimum hold is not kept", file: "leases.go",
		old: "if end := l.began.Add(l.minHold); end.After(now) {", new: "if end := l.began.Add(l.minHold); end.After(now) && false {",
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
		old: "return life + life/20 + 100*time.Millisecond }", new: "return life / 2 }",
	},
	{
		name: "casqueue: a release is answered while an unanswered write may still be done", file: "driver/internal/casqueue/writer.go",
		old: "next, changed := before.clone(), f.unanswered", new: "next, changed := before.clone(), false",
		unseen: "the write has to come after the release of its ticket, and before any other change",
	},
	{
		name: "casqueue: an older reading overtakes a newer one", file: "driver/internal/casqueue/reading.go",
		old: "case begun.Before(f.asOf):", new: "case false:",
		unseen: "memcached has one connection, which keeps the order",
	},
	{
		name: "casqueue: nobody is notified", file: "driver/internal/casqueue/notify.go",
		old: "func (e *Engine) notifyAll(before, after *document) {", new: "func (e *Engine) notifyAll(before, after *document) {\n\tif before != nil || after != nil {\n\t\treturn\n\t}",
	},
	{
		name: "memcached: a version outlives the connection", file: "driver/memcached/store.go",
		old: "if read.Number != 0 && read.Era != n.era {", new: "if false {",
		unseen: "the numbers of two lives of the server have to meet",
	},
	{
		name: "consul: a deposed leader is believed that a ticket is gone", file: "driver/consul/watch.go",
		old: "return index >= t.Number", new: "return true",
		unseen: "the leader has to be deposed between the tickets of a holder and of its waiter",
	},
	{
		name: "consul: a deposed leader is believed that a holder has lost", file: "driver/consul/store.go",
		old: "if err == nil && len(out.Errors) > 0 {", new: "if err == nil && len(out.Errors) > 0 && false {",
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

var found = regexp.MustCompile(`seed (\d+) \((\w+)\), after (\S+) of processor time: \S+ (.*)`)

// TestMutants puts faults back, one after the other, and looks for them. It prints the
// table of README.md.
func TestMutants(t *testing.T) {
	if os.Getenv("LOCKER_TEST_ALL") == "" && *only == "" {
		t.Skip("takes a minute for each mutant: LOCKER_TEST_ALL=1, or -mutant with a part of a name")
	}
	for _, m := range mutants {
		if !strings.Contains(m.name, *only) {
			continue
		}
		f, out := m.look(t)
		switch {
		case f != nil:
			fmt.Printf("| %s | %s | %s | %s | %s |\n", m.name, f[1], f[2], f[3], kindOf(f[4]))
		case m.unseen != "":
			fmt.Printf("| %s | – | | | not found: %s |\n", m.name, m.unseen)
		default:
			fmt.Printf("| %s | – | | | NOT FOUND |\n", m.name)
			t.Errorf("%s: not found within %v:\n%.2000s", m.name, *effort, out)
		}
	}
}

// TestMutantsFit finds, without running a mutant, that the code which it replaces is still there.
func TestMutantsFit(t *testing.T) {
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) { m.overlay(t) })
	}
}

// look looks for a mutant: for a seed that shows a violation with it, and none without.
func (m *mutant) look(t *testing.T) (f []string, out string) {
	overlay, most := m.overlay(t), *effort
	if m.unseen != "" {
		most /= 6
	}
	until := time.Now().Add(most)
	for first := "1"; time.Now().Before(until); {
		out = simulate(t, overlay, "-from", first, "-for", time.Until(until).String())
		if f = found.FindStringSubmatch(out); f == nil {
			return nil, out
		}
		if without := simulate(t, "", "-seed", f[1], "-count", "3"); !strings.Contains(without, "FAIL") {
			return f, out
		}
		n, _ := strconv.Atoi(f[1])
		first = strconv.Itoa(n + 1)
	}
	return nil, out
}

// overlay writes the list of changed files for the go command.
func (m *mutant) overlay(t *testing.T) string {
	path, err := filepath.Abs(filepath.Join("../..", m.file))
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		t.Fatalf("%s: %s has changed: this is there %d times:\n%s", m.name, m.file, n, m.old)
	}
	dir := t.TempDir()
	changed, overlay := filepath.Join(dir, "mutant.go"), filepath.Join(dir, "overlay.json")
	list, err := json.Marshal(map[string]map[string]string{"Replace": {path: changed}})
	if err == nil {
		err = os.WriteFile(overlay, list, 0o600)
	}
	if err == nil {
		err = os.WriteFile(changed, []byte(strings.Replace(string(text), m.old, m.new, 1)), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return overlay
}

// simulate runs TestSeeds in a process of its own, and returns what it prints.
func simulate(t *testing.T, overlay string, args ...string) string {
	all := []string{"test", "-vet=off", "-count=1", "-run", "^TestSeeds$", "-overlay", overlay, ".", "-shrink=false", "-world", *within}
	cmd := exec.CommandContext(t.Context(), "go", append(all, args...)...) //nolint:gosec // the arguments are ours
	out, _ := cmd.CombinedOutput()
	if strings.Contains(string(out), "[build failed]") {
		t.Fatalf("%s", out)
	}
	return string(out)
}
