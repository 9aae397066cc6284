package gocron_test

import (
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/postgres"
	_ "github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
)

// Four schedulers on a real store do a job no more often than one would. With an
// Elector only one of them does it.
func TestStores(t *testing.T) {
	for name, boot := range map[string]func(testing.TB, ...testbed.Option) *testbed.Server{
		"redis": testbed.Redis, "postgres": testbed.Postgres,
	} {
		t.Run(name, func(t *testing.T) {
			srv := boot(t)
			open := func(t *testing.T) locker.Locker {
				l, err := locker.Open(t.Context(), srv.URL())
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := l.Close(); err != nil {
						t.Error(err)
					}
				})
				return l
			}
			t.Run("locker", func(t *testing.T) {
				const minHold = 400 * time.Millisecond
				runs, took := inFour(t, func() gocron.SchedulerOption { return newLocker(t, open(t), minHold) })
				if most := int(took/minHold) + 1; len(runs) > most || len(runs) < 2 {
					t.Errorf("%d runs in %v: want 2 to %d", len(runs), took, most)
				}
			})
			t.Run("elector", func(t *testing.T) {
				runs, took := inFour(t, func() gocron.SchedulerOption {
					opt, _ := newElector(t, open(t))
					return opt
				})
				if len(runs) < 2 || by(runs, runs[0].who) != len(runs) {
					t.Errorf("runs in %v: %v", took, runs)
				}
			})
		})
	}
}

// inFour runs a job of every half second in four schedulers for some seconds.
func inFour(t *testing.T, opt func() gocron.SchedulerOption) (runs []run, took time.Duration) {
	t.Helper()
	var jobs log
	var stops []func()
	begun := time.Now()
	for i := range 4 {
		stops = append(stops, start(t, gocron.DurationJob(500*time.Millisecond), jobs.task(i, 0), []gocron.SchedulerOption{opt()}))
		time.Sleep(20 * time.Millisecond) // their starts differ
	}
	time.Sleep(3 * time.Second)
	for _, stop := range stops {
		stop()
	}
	return jobs.all(), time.Since(begun)
}
