package gocron_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
	"go.uber.org/goleak"

	"github.com/lockerproject/locker"
	lockergocron "github.com/lockerproject/locker/adapter/gocron"
	"github.com/lockerproject/locker/lockertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// log is the runs of a job, by all schedulers.
type log struct {
	mu   sync.Mutex
	runs []run
	now  int // at this moment
	most int // at the same time
}

type run struct {
	who int
	at  time.Time
}

// task is a job that takes d.
func (l *log) task(who int, d time.Duration) gocron.Task {
	return gocron.NewTask(func() {
		l.mu.Lock()
		l.runs = append(l.runs, run{who, time.Now()})
		l.now++
		l.most = max(l.most, l.now)
		l.mu.Unlock()
		time.Sleep(d)
		l.mu.Lock()
		l.now--
		l.mu.Unlock()
	})
}

// all returns the runs until now.
func (l *log) all() []run {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.runs)
}

// atOnce returns how many runs there were at the same time, at the most.
func (l *log) atOnce() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.most
}

func by(runs []run, who int) (n int) {
	for _, r := range runs {
		if r.who == who {
			n++
		}
	}
	return n
}

// clock is a clock that is wrong by a constant.
type clock struct {
	clockwork.Clock
	wrong time.Duration
}

func (c clock) Now() time.Time { return c.Clock.Now().Add(c.wrong) }

// start starts a scheduler with one job, which the test stops.
func start(t *testing.T, def gocron.JobDefinition, task gocron.Task, opts []gocron.SchedulerOption, jobOpts ...gocron.JobOption) (stop func()) {
	t.Helper()
	s, err := gocron.NewScheduler(opts...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.NewJob(def, task, append(jobOpts, gocron.WithName("report"))...); err != nil {
		t.Fatal(err)
	}
	s.Start()
	return sync.OnceFunc(func() {
		if err := s.Shutdown(); err != nil {
			t.Error(err)
		}
	})
}

func newLocker(t *testing.T, l locker.Locker, minHold time.Duration) gocron.SchedulerOption {
	t.Helper()
	j, err := lockergocron.NewLocker(l, minHold)
	if err != nil {
		t.Fatal(err)
	}
	return gocron.WithDistributedLocker(j)
}

func newElector(t *testing.T, l locker.Locker) (gocron.SchedulerOption, *lockergocron.Elector) {
	t.Helper()
	e, err := lockergocron.NewElector(l, "leader", locker.WithTTL(10*time.Second))
	if err != nil {
		t.Fatal(err)
	}
	return gocron.WithDistributedElector(e), e
}

// bubble runs f in a bubble, with the Lockers of three processes, and ends with
// their Close.
func bubble(t *testing.T, f func(t *testing.T, ls [3]*lockertest.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := lockertest.New()
		ls := [3]*lockertest.Locker{l, l.Join(), l.Join()}
		f(t, ls)
		for _, l := range ls {
			l.Heal()
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// A job of every minute, short or long, is done once a minute: by schedulers that
// count from their own start, and by schedulers whose clocks differ.
func TestOncePerPeriod(t *testing.T) {
	cron := gocron.CronJob("* * * * *", false)
	every := gocron.DurationJob(time.Minute)
	for name, c := range map[string]struct {
		def   gocron.JobDefinition
		apart time.Duration // the schedulers' starts
		wrong time.Duration // the schedulers' clocks, one from the other
		takes time.Duration
	}{
		"from the start":     {def: every, apart: 17 * time.Second},
		"together":           {def: every},
		"one right after":    {def: every, apart: time.Millisecond},
		"clocks":             {def: cron, wrong: 5 * time.Second},
		"clocks, longer job": {def: cron, wrong: 5 * time.Second, takes: 20 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, ls [3]*lockertest.Locker) {
				var jobs log
				var stops []func()
				time.Sleep(time.Until(time.Now().Truncate(time.Minute).Add(time.Minute + 30*time.Second)))
				for i, l := range ls {
					stops = append(stops, start(t, c.def, jobs.task(i, c.takes), []gocron.SchedulerOption{
						newLocker(t, l, 50*time.Second),
						gocron.WithClock(clock{clockwork.NewRealClock(), time.Duration(i) * c.wrong}),
					}))
					time.Sleep(c.apart)
				}
				const minutes = 30
				time.Sleep(minutes*time.Minute - 2*c.apart)
				runs := jobs.all()
				if len(runs) < minutes-1 || len(runs) > minutes+1 || jobs.atOnce() != 1 {
					t.Errorf("%d runs in %d minutes, %d at a time", len(runs), minutes, jobs.atOnce())
				}
				for i, r := range runs[1:] {
					if d := r.at.Sub(runs[i].at); d < 50*time.Second {
						t.Errorf("a run %v after the one before", d)
					}
				}
				for _, stop := range stops {
					stop()
				}
			})
		})
	}
}

// A run that takes longer than the period keeps the others away.
func TestLongJob(t *testing.T) {
	bubble(t, func(t *testing.T, ls [3]*lockertest.Locker) {
		var jobs log
		var stops []func()
		for i, l := range ls {
			// An owner does not re-enter the lock of its own last run.
			j, err := lockergocron.NewLocker(l, 50*time.Second, locker.WithOwner("me"))
			if err != nil {
				t.Fatal(err)
			}
			stops = append(stops, start(t, gocron.DurationJob(time.Minute), jobs.task(i, 150*time.Second),
				[]gocron.SchedulerOption{gocron.WithDistributedLocker(j)}))
		}
		time.Sleep(time.Hour + 40*time.Second) // between two runs: they take 2.5 of each 3 minutes
		if n := len(jobs.all()); n < 15 || n > 20 || jobs.atOnce() != 1 {
			t.Errorf("%d runs of 2.5 minutes in an hour, %d at a time", n, jobs.atOnce())
		}
		for _, stop := range stops {
			stop()
		}
	})
}

// gocron reports why a run was skipped.
func TestSkipped(t *testing.T) {
	bubble(t, func(t *testing.T, ls [3]*lockertest.Locker) {
		skipped := make(chan error, 1)
		listener := gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, name string, err error) {
			if name != "report" {
				t.Errorf("the job is called %s", name)
			}
			skipped <- err
		}))
		var jobs log
		stop := start(t, gocron.DurationJob(time.Minute), jobs.task(0, 0),
			[]gocron.SchedulerOption{newLocker(t, ls[0], 50*time.Second)}, listener)
		ls[0].Down()
		if err := <-skipped; !errors.Is(err, locker.ErrUnavailable) {
			t.Error(err)
		}
		ls[0].Heal()
		k, err := ls[1].Acquire(t.Context(), "report")
		if err != nil {
			t.Fatal(err)
		}
		if err := <-skipped; !errors.Is(err, locker.ErrNotAcquired) || errors.Is(err, locker.ErrUnavailable) {
			t.Error(err)
		}
		if err := k.Release(t.Context()); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute + time.Second)
		if n := len(jobs.all()); n != 1 {
			t.Errorf("%d runs", n)
		}
		stop()
	})
}

// One scheduler does all; when it is cut off, or resigns, another one does. A leader
// that is cut off has stopped before.
func TestElector(t *testing.T) {
	bubble(t, func(t *testing.T, ls [3]*lockertest.Locker) {
		var jobs log
		var stops []func()
		var electors []*lockergocron.Elector
		for i, l := range ls {
			opt, e := newElector(t, l)
			electors = append(electors, e)
			stops = append(stops, start(t, gocron.DurationJob(time.Second), jobs.task(i, 0), []gocron.SchedulerOption{opt}))
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		runs := jobs.all()
		leader := runs[0].who
		if n := by(runs, leader); n != len(runs) || n < 59 {
			t.Errorf("the leader did %d of %d runs in a minute", n, len(runs))
		}
		ls[leader].Hang()
		time.Sleep(time.Minute)
		runs = jobs.all()[len(runs):]
		next := runs[len(runs)-1].who
		if n := by(runs, leader); n < 5 || n > 11 || next == leader {
			t.Errorf("without the store the leader did %d runs, then %d", n, next)
		}
		if n := by(runs, next); n < 59-11 || by(runs, leader)+n != len(runs) {
			t.Errorf("the next leader did %d of %d runs", n, len(runs))
		}
		for i := 1; i < len(runs); i++ {
			if runs[i-1].who == next && runs[i].who == leader {
				t.Error("the old leader was not over when the next began")
			}
		}
		ls[leader].Heal()

		before := len(jobs.all())
		stops[next]()
		if err := electors[next].Resign(t.Context()); err != nil {
			t.Error(err)
		}
		if err := electors[next].Resign(t.Context()); err != nil {
			t.Error("a second time:", err)
		}
		time.Sleep(10 * time.Second)
		runs = jobs.all()[before:]
		if n := by(runs, next); n != 0 || len(runs) < 9 || len(runs) > 11 || by(runs, runs[0].who) != len(runs) {
			t.Errorf("after the resignation: %d runs, %d by who resigned", len(runs), n)
		}
		for _, stop := range stops {
			stop()
		}
	})
}

func TestBadInput(t *testing.T) {
	l := lockertest.New()
	defer l.Close()
	_, noLocker := lockergocron.NewLocker(nil, time.Second)
	_, noHold := lockergocron.NewLocker(l, 0)
	_, negative := lockergocron.NewLocker(l, -1)
	_, noElector := lockergocron.NewElector(nil, "leader")
	for i, err := range []error{noLocker, noHold, negative, noElector} {
		if !errors.Is(err, locker.ErrInvalidOption) {
			t.Errorf("%d: %v", i, err)
		}
	}
	e, err := lockergocron.NewElector(l, "leader", locker.WithTTL(-1))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.IsLeader(context.Background()); !errors.Is(err, locker.ErrInvalidOption) {
		t.Error(err)
	}
	if err := e.Resign(context.Background()); err != nil {
		t.Error(err)
	}
}
