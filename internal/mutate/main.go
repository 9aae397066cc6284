// Mutate finds what no test notices: it leaves out each statement of a package, and fixes each
// condition, one at a time, and runs the package's short tests and worlds of the simulation
// against that. It prints the changes that survive, and those that no test comes by where they
// would make a difference ("unseen").
//
//	go run ./internal/mutate -pkg driver/internal/casqueue -files share.go -worlds memcached,nats
//
// The Lua texts that a package reads from an embed.FS named files are mutated, too: as above, and operands of and, or, +, - and *
// are left out, and the edges of comparisons moved. Scripts that are not run by their package alone need their tests (-skip leaves
// out slow ones), and LOCKER_TEST_REQUIRE=1 the server:
//
//	LOCKER_TEST_REQUIRE=1 go run ./internal/mutate -pkg driver/internal/redisqueue -files redlock_queue.lua -worlds redlock
//
// A survivor is a question, not a fault: some tests are missing, and some changes change nothing
// that counts. Code that can be left out is seldom needless: somebody's order of events needs it.
//
// All mutants are in one build (mutant schemata: Untch, Offutt and Harrold, 1993), and only the
// tests that come by one run against it: some twenty a minute. `make mutants` is the other way
// round: it puts back faults that were made once, and each has to be found.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

var (
	pkg    = flag.String("pkg", "", "folder of the package, below the module's root")
	files  = flag.String("files", "", "only these files of it, separated by commas: of Go, or of the Lua that it embeds")
	worlds = flag.String("worlds", "", "worlds of the simulation to run too, separated by commas")
	each   = flag.Duration("for", 3*time.Second, "time for each world")
	skip   = flag.String("skip", "", "tests that are not run, as go test -skip has them")
	most   = flag.Duration("timeout", time.Minute, "of one run")
	par    = flag.Int("parallel", 2, "mutants at a time")
)

func main() {
	flag.Parse()
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "mutate:", err)
		os.Exit(1)
	}
}

func run() error {
	if *pkg == "" || flag.NArg() > 0 {
		return errors.New("which package? -pkg driver/internal/casqueue")
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	out, err := os.MkdirTemp("", "locker-mutate-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(out)
	in := &instrumenter{dropped: make(map[int]bool)}
	dir := filepath.Join(root, *pkg)
	overlay, err := in.overlay(dir, out, list(*files))
	if err != nil {
		return err
	}
	tests, err := suites(overlay, out, dir, root)
	if err != nil {
		return err
	}
	fmt.Printf("%d mutants\n", len(in.mutants))
	// Tests that fail may leave their random cases to be run again: these are of mutants.
	if cases := filepath.Join(dir, "testdata", "rapid"); !exists(cases) {
		defer os.RemoveAll(cases)
	}
	survive := tests.survivors(in.mutants)
	fmt.Printf("%d of %d are not noticed\n", survive, len(in.mutants))
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// suite is a test binary with arguments, and the mutants that it comes by.
type suite struct {
	dir   string
	args  []string
	seen  string // the file in which these are
	meets map[int]bool
}

type allSuites []*suite

// suites builds the tests, and runs them without a mutant.
func suites(overlay, out, dir, root string) (all allSuites, err error) {
	build := func(name, dir string) (string, error) {
		path := filepath.Join(out, name)
		cmd := exec.Command("go", "test", "-vet=off", "-c", "-overlay", overlay, "-o", path, ".") //nolint:noctx // it ends with this process
		cmd.Dir = dir
		if msg, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("the tests do not compile:\n%s", msg)
		}
		return path, nil
	}
	unit, err := build("unit.test", dir)
	if err != nil {
		return nil, err
	}
	all = append(all, &suite{dir: dir, args: []string{unit, "-test.short", "-test.failfast", "-test.skip", cmp.Or(*skip, "^$")}})
	if ws := list(*worlds); len(ws) > 0 {
		simDir := filepath.Join(root, "internal", "sim")
		sim, err := build("sim.test", simDir)
		if err != nil {
			return nil, err
		}
		for _, w := range ws {
			all = append(all, &suite{dir: simDir, args: []string{sim, "-test.run", "TestSeeds$", "-world", w, "-from", "1", "-for", each.String()}})
		}
	}
	for i, s := range all {
		s.seen = filepath.Join(out, fmt.Sprintf("seen%d", i))
		if msg, err := s.run("MUTANTS_SEEN=" + s.seen); err != nil {
			return nil, fmt.Errorf("%v fails without a mutant: %w\n%s", s.args[1:], err, msg)
		}
		text, err := os.ReadFile(s.seen)
		if err != nil {
			return nil, fmt.Errorf("%v comes by no mutant: %w", s.args[1:], err)
		}
		s.meets = make(map[int]bool)
		for id := range strings.FieldsSeq(string(text)) {
			n, _ := strconv.Atoi(id)
			s.meets[n] = true
		}
	}
	return all, nil
}

func (s *suite) run(env string) (output []byte, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), *most)
	defer cancel()
	cmd := exec.CommandContext(ctx, s.args[0], s.args[1:]...) //nolint:gosec // it was built here
	cmd.Dir, cmd.Env, cmd.WaitDelay = s.dir, append(os.Environ(), env), time.Second
	return cmd.CombinedOutput()
}

// survivors prints the mutants that no suite notices, and returns how many there are.
func (all allSuites) survivors(mutants []mutant) (survive int) {
	var group sync.WaitGroup
	var mu sync.Mutex
	work := make(chan mutant)
	for range *par {
		group.Go(func() {
			for m := range work {
				if what := all.verdict(m.id); what != "" {
					mu.Lock()
					if what != hangs {
						survive++
					}
					fmt.Printf("%-8s %-20s %-5s %s\n", what, m.at, m.kind, m.text)
					mu.Unlock()
				}
			}
		})
	}
	for _, m := range mutants {
		work <- m
	}
	close(work)
	group.Wait()
	return survive
}

// hangs is the verdict on a mutant with which a suite takes longer than -timeout: it is noticed, unless the machine is busy.
const hangs = "hangs"

// verdict is "" for a mutant that a suite notices.
func (all allSuites) verdict(id int) string {
	what := "unseen"
	for _, s := range all {
		if !s.meets[id] {
			continue
		}
		what = "survives"
		begun := time.Now()
		if _, err := s.run(fmt.Sprintf("MUTANT=%d", id)); err != nil {
			if time.Since(begun) >= *most {
				return hangs
			}
			return ""
		}
	}
	return what
}
