//go:build linux

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
	"github.com/lockerproject/locker/internal/testbed"
)

// A soak is one run.
type soak struct {
	*rig
	store   store
	dir     string
	seed    uint64
	threads int
	groups  int           // of names that all workers share
	longest time.Duration // of a fault
	ending  time.Duration // how long a worker may take to end that was told to, without a fault

	bed     *testbed.Program
	disk    *disk
	clock   *clock
	crew    []atomic.Pointer[testbed.Process] // one worker after another each; nil between two
	totals  *totals
	witness *witness
}

func main() {
	testbed.RegisterChild("worker", runWorker)
	testbed.RunChild()
	name := flag.String("store", "redis", "the store: "+strings.Join(storeNames(), ", "))
	length := flag.Duration("for", 3*time.Minute, "how long")
	dir := flag.String("dir", "", "folder of the totals, to which a later run adds (default: one in the user's cache)")
	workers := flag.Int("workers", 5, "processes at once")
	threads := flag.Int("threads", 4, "goroutines of a process")
	seed := flag.Uint64("seed", 0, "of the faults (default: the number of the run)")
	flag.Parse()
	if err := run(*name, *dir, *length, *workers, *threads, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func storeNames() (list []string) {
	for _, s := range stores {
		list = append(list, s.name)
	}
	return list
}

func run(name, dir string, length time.Duration, workers, threads int, seed uint64) error {
	i := slices.Index(storeNames(), name)
	if i < 0 {
		return fmt.Errorf("unknown store %q: there are %s", name, strings.Join(storeNames(), ", "))
	}
	s := &soak{store: stores[i], seed: seed, threads: threads, groups: max(workers*threads/20, 1), longest: 8 * time.Second, ending: time.Minute, dir: dir}
	if s.dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return err
		}
		s.dir = filepath.Join(cache, "locker", "soak", name)
	}
	s.dir, _ = filepath.Abs(s.dir)
	t, err := load(s.dir, name)
	if err != nil {
		return err
	}
	s.totals = t
	t.Workers, t.LeftOut = workers, nil
	if s.seed == 0 {
		s.seed = uint64(t.Runs) + 1
	}
	s.crew = make([]atomic.Pointer[testbed.Process], workers)
	return s.run(length)
}

// run is the whole run, from the start of the store to the report.
func (s *soak) run(length time.Duration) error {
	s.witness = newWitness(s.totals)
	s.bed = new(testbed.Program)
	s.bed.Broken = func(why string) { // the run ends here
		fmt.Fprintln(os.Stderr, "soak: broken off:", why)
		_ = s.witness.save(s.dir)
		s.bed.End()
		os.Exit(2)
	}
	defer s.bed.End()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := s.start(ctx); err != nil {
		return err
	}
	s.totals.Runs++
	ctx, cancel := context.WithTimeout(ctx, length)
	defer cancel()
	stopWatch := s.watch()
	s.work(ctx)
	err := s.checkLeft()
	stopWatch()
	err = errors.Join(err, s.witness.save(s.dir))
	fmt.Print("\n", s.totals.report(), "\nin ", s.dir, "\n")
	if s.totals.violated > 0 {
		err = errors.Join(err, fmt.Errorf("%d violations", s.totals.violated))
	}
	return err
}

// start makes what the machine allows, and starts the store.
func (s *soak) start(ctx context.Context) error {
	s.must(os.Setenv("LOCKER_TEST_REQUIRE", "1")) // start servers
	var places []place
	var err error
	if s.store.apart {
		places, err = makePlaces(s.bed, 3)
		if s.leaveOut("partitions", err) {
			places = nil
		}
	}
	if s.disk, err = makeDisk(s.bed); s.leaveOut("full disks", err) {
		s.disk = nil
	}
	if s.store.stepped {
		if s.clock, err = makeClock(); s.leaveOut("clock steps", err) {
			s.clock = nil
		}
	}
	s.rig = s.store.start(s.bed, places)
	return s.learn(ctx)
}

// leaveOut says in one line what the machine does not allow.
func (s *soak) leaveOut(what string, err error) bool {
	if err != nil {
		s.totals.LeftOut = append(s.totals.LeftOut, what+": "+err.Error())
		fmt.Printf("left out: %s: %v\n", what, err)
	}
	return err != nil
}

// learn asks the driver for its bounds, and the store for its version.
func (s *soak) learn(ctx context.Context) error {
	u, err := driver.ParseURL(s.urls[0])
	if err != nil {
		return err
	}
	d, err := driver.Open(ctx, u)
	if err != nil {
		return err
	}
	defer d.Close()
	ask, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if v, ok := d.(driver.ServerVersioner); ok {
		if s.totals.Version, err = v.ServerVersion(ask); err != nil {
			return err
		}
	}
	for _, ttl := range s.store.ttls {
		b := driver.BoundsOf(d, ttl)
		s.witness.patience = max(s.witness.patience, b.Crash+b.Liveness)
		s.witness.grace = max(s.witness.grace, ttl)
	}
	s.witness.recovery = s.witness.patience + 5*time.Second
	fmt.Printf("%s, %s: waits may last %v after a fault\n", s.store.name, s.totals.Version, s.witness.recovery)
	return nil
}

// watch does what has to be done all the time, until the function that it returns is
// called.
func (s *soak) watch() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() {
		const pace = 10 * time.Millisecond
		for asked := time.Now(); ctx.Err() == nil; asked = time.Now() {
			time.Sleep(pace)
			if late := time.Since(asked) - pace; late > pace {
				s.witness.wasLate(late)
			}
		}
	})
	all.Go(func() {
		last := time.Now()
		for n := 0; ctx.Err() == nil; n++ {
			retry.Sleep(ctx, time.Second, nil)
			s.witness.sweep(now())
			s.witness.note(func(t *totals) { t.Ran += time.Since(last) })
			last = time.Now()
			if n%10 == 0 {
				s.must(s.witness.save(s.dir))
			}
		}
	})
	return func() { cancel(); all.Wait() }
}

// work runs the crew, and alternates between faults and calm, until ctx ends; the end is calm.
func (s *soak) work(ctx context.Context) {
	working, dismiss := context.WithCancel(context.Background())
	var crew sync.WaitGroup
	for i := range s.crew {
		crew.Go(func() { s.employ(working, i) })
	}
	r := rand.New(rand.NewPCG(s.seed, 0))
	calm := s.witness.recovery + settle + 5*time.Second
	for turn := uint64(1); ctx.Err() == nil; turn++ {
		retry.Sleep(ctx, 5*time.Second, nil)
		faulty, end := context.WithTimeout(ctx, calm+time.Duration(r.Int64N(int64(calm))))
		var both sync.WaitGroup
		both.Go(func() { s.breakStore(faulty, rand.New(rand.NewPCG(s.seed, 2*turn))) })
		both.Go(func() { s.breakWorkers(faulty, rand.New(rand.NewPCG(s.seed, 2*turn+1))) })
		both.Wait()
		end()
		fmt.Println(s.witness.summary())
		retry.Sleep(ctx, calm, nil)
	}
	retry.Sleep(context.Background(), calm, nil)
	dismiss()
	crew.Wait()
}

// checkLeft looks for tickets of workers that have ended. What they have left is gone when
// its lease is over.
func (s *soak) checkLeft() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute+s.witness.recovery)
	defer cancel()
	c, err := locker.Open(ctx, s.urls[0])
	if err != nil {
		return err
	}
	defer c.Close()
	var left []locker.Queue
	for end := now() + int64(s.witness.recovery); ; retry.Sleep(ctx, time.Second, nil) {
		left = left[:0]
		for i := range s.groups * len(names) {
			q, err := c.Inspect(ctx, inGroup(names[i%len(names)].name, i/len(names)))
			if err != nil {
				return err
			}
			if len(q.Tickets) > 0 {
				left = append(left, q)
			}
		}
		if len(left) == 0 || now() > end {
			break
		}
		fmt.Println("left for now:", left)
	}
	if len(left) > 0 {
		s.witness.observe(event{Kind: broken, At: now(), Why: fmt.Sprintf("tickets are left long after all workers have ended: %+v", left)})
	}
	return nil
}
