package lockerslog_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
	_ "github.com/lockerproject/locker/driver/postgres"
	_ "github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/lockertest"
	lockerslog "github.com/lockerproject/locker/observe/slog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logged is where a test's records end up.
type logged struct{ testbed.Buffer }

func (l *logged) logger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: level}))
}

// records are those with the given message.
func (l *logged) records(t *testing.T, msg string) (all []map[string]any) {
	t.Helper()
	for line := range strings.Lines(l.String()) {
		r := map[string]any{}
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if r["msg"] == msg {
			all = append(all, r)
		}
	}
	return all
}

func (l *logged) one(t *testing.T, msg string) map[string]any {
	t.Helper()
	all := l.records(t, msg)
	if len(all) != 1 {
		t.Fatalf("%d records %q in\n%s", len(all), msg, l)
	}
	return all[0]
}

func check(t *testing.T, r map[string]any, want map[string]any) {
	t.Helper()
	for key, value := range want {
		if r[key] != value {
			t.Errorf("%s: %s is %v, want %v", r["msg"], key, r[key], value)
		}
	}
}

func keys(r map[string]any) string { return strings.Join(slices.Sorted(maps.Keys(r)), " ") }

// The record of a release says who held what, when and for how long.
func TestAudit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		l := lockertest.New(lockerslog.Observer(log.logger(slog.LevelInfo)))
		defer l.Close()
		ctx := t.Context()
		begun := time.Now()
		k, err := l.Acquire(ctx, "order:42", locker.WithOwner("web-1"))
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(1500*time.Millisecond, func() { _ = k.Release(ctx) })
		r, err := l.Acquire(ctx, "order:42", locker.Shared())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if err := r.Release(ctx); err != nil {
			t.Fatal(err)
		}

		acquired, released := log.records(t, "lock acquired"), log.records(t, "lock released")
		if len(acquired) != 2 || len(released) != 2 {
			t.Fatalf("the log is\n%s", log.String())
		}
		check(t, acquired[0], map[string]any{
			"level": "INFO", "lock": "order:42", "owner": "web-1", "store": "lockertest", "mode": "exclusive",
			"fencing_token": float64(k.Token()), "waited": false, "seconds": 0.0,
		})
		check(t, acquired[1], map[string]any{"mode": "shared", "waited": true, "seconds": 1.5})
		check(t, released[0], map[string]any{
			"level": "INFO", "lock": "order:42", "owner": "web-1", "fencing_token": float64(k.Token()), "held_seconds": 1.5,
			"since": begun.Format(time.RFC3339Nano), "acquisition": acquired[0]["acquisition"],
		})
		check(t, released[1], map[string]any{"held_seconds": 1.0, "acquisition": acquired[1]["acquisition"]})
		if got, want := keys(released[0]), "acquisition fencing_token held_seconds level lock mode msg owner since store time"; got != want {
			t.Errorf("a release has %s, want %s", got, want)
		}
		if n := strings.Count(log.String(), "\n"); n != 4 {
			t.Errorf("%d records, want 4:\n%s", n, log.String())
		}
	})
}

// Each event has its level and its words.
func TestLevels(t *testing.T) {
	refused := fmt.Errorf("busy: %w", locker.ErrNotAcquired)
	down := errors.Join(locker.ErrNotAcquired, fmt.Errorf("down: %w", locker.ErrUnavailable))
	for _, test := range []struct {
		e     locker.Event
		level slog.Level
	}{
		{locker.Event{Kind: locker.EventWaiting}, slog.LevelDebug},
		{locker.Event{Kind: locker.EventRejoined, Err: down}, slog.LevelWarn},
		{locker.Event{Kind: locker.EventAcquired}, slog.LevelInfo},
		{locker.Event{Kind: locker.EventAcquired, Degraded: locker.ErrUnavailable}, slog.LevelWarn},
		{locker.Event{Kind: locker.EventReentered}, slog.LevelDebug},
		{locker.Event{Kind: locker.EventRenewed}, slog.LevelDebug},
		{locker.Event{Kind: locker.EventRenewFailed, Err: down}, slog.LevelWarn},
		{locker.Event{Kind: locker.EventLost, Err: locker.ErrLost}, slog.LevelError},
		{locker.Event{Kind: locker.EventReleased}, slog.LevelInfo},
		{locker.Event{Kind: locker.EventReleased, Err: down}, slog.LevelWarn},
		{locker.Event{Kind: locker.EventFailed, Err: refused}, slog.LevelDebug},
		{locker.Event{Kind: locker.EventFailed, Err: context.Canceled}, slog.LevelDebug},
		{locker.Event{Kind: locker.EventFailed, Err: context.DeadlineExceeded}, slog.LevelDebug},
		{locker.Event{Kind: locker.EventFailed, Err: locker.ErrClosed}, slog.LevelDebug},
		{locker.Event{Kind: locker.EventFailed, Err: down}, slog.LevelWarn},
		{locker.Event{Kind: locker.EventFailed, Err: errors.New("denied")}, slog.LevelWarn},
	} {
		if got := lockerslog.Level(test.e); got != test.level {
			t.Errorf("%v with %v has the level %v, want %v", test.e.Kind, test.e.Err, got, test.level)
		}
	}
}

// A lost lock is an error that says why; the failures that led to it are warnings.
func TestLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log logged
		l := lockertest.New(lockerslog.Observer(log.logger(slog.LevelWarn)))
		defer l.Close()
		k, err := l.Acquire(t.Context(), "a", locker.WithTTL(3*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		l.Down()
		<-k.Done()
		synctest.Wait()
		l.Heal()
		if len(log.records(t, "lock renewal failed")) == 0 {
			t.Errorf("no renewal failed:\n%s", log.String())
		}
		lost := log.one(t, "lock lost")
		check(t, lost, map[string]any{"level": "ERROR", "lock": "a", "fencing_token": float64(k.Token()), "held_seconds": 2.97})
		if lost["error"] == "" || lost["since"] == nil {
			t.Errorf("lost: %v", lost)
		}
	})
}

// A logger at the level debug gets every event, and other levels can be set.
func TestEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var all, audit logged
		l := lockertest.New(
			lockerslog.Observer(all.logger(slog.LevelDebug)),
			lockerslog.Observer(audit.logger(slog.LevelInfo), nil, func(e locker.Event) slog.Level {
				if e.Kind == locker.EventFailed {
					return slog.LevelInfo
				}
				return slog.LevelDebug
			}),
		)
		defer l.Close()
		ctx := t.Context()
		k, err := l.Acquire(ctx, "a", locker.WithTTL(3*time.Second), locker.WithOwner("me"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = l.Acquire(k.Context(ctx), "a", locker.WithTTL(3*time.Second)); err != nil {
			t.Fatal(err)
		}
		_, _ = l.Acquire(ctx, "a", locker.WithWait(1500*time.Millisecond))
		for _, msg := range []string{"waiting for lock", "lock acquired", "lock reentered", "lock renewed", "lock not acquired"} {
			all.one(t, msg)
		}
		check(t, all.one(t, "lock not acquired"), map[string]any{"level": "DEBUG", "seconds": 1.5, "waited": true, "unavailable": false})
		check(t, audit.one(t, "lock not acquired"), map[string]any{"level": "INFO"})
		if n := strings.Count(audit.String(), "\n"); n != 1 {
			t.Errorf("the audit has %d records:\n%s", n, audit.String())
		}
	})
}

// Without a logger, the present default is used. Degraded grants are warnings.
func TestDefaultLogger(t *testing.T) {
	before := slog.Default()
	defer slog.SetDefault(before)
	d := compose.Fallback(away{memory.New()}, memory.New())
	l := locker.New(d, lockerslog.Observer(nil))
	defer l.Close()
	var log logged
	slog.SetDefault(log.logger(slog.LevelWarn))
	if _, err := l.Acquire(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	check(t, log.one(t, "lock acquired"), map[string]any{"level": "WARN", "degraded": true})
}

// away is a store that is down.
type away struct{ *memory.Driver }

func (away) Acquire(context.Context, driver.Request) (driver.Grant, error) {
	return driver.Grant{}, driver.NoTicket(driver.Unavailable(errors.New("connection refused")))
}

// The log of a program whose password is wrong, and then whose store is down, has no password.
func TestNoPasswords(t *testing.T) {
	const password = "s3cret-Pa55"
	for name, base := range map[string]string{
		"redis": testbed.SharedRedis(t).URL(), "postgres": testbed.SharedPostgres(t).URL(),
		"down": "postgres://127.0.0.1:1/locker",
	} {
		t.Run(name, func(t *testing.T) {
			u, err := url.Parse(base)
			if err != nil {
				t.Fatal(err)
			}
			u.User = url.UserPassword("nobody", password)
			var log logged
			l, err := locker.Open(t.Context(), u.String(), lockerslog.Observer(log.logger(slog.LevelDebug)))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			if _, err := l.TryAcquire(t.Context(), "a"); err == nil {
				t.Fatal("the wrong password is accepted")
			}
			r := log.one(t, "lock not acquired")
			if r["error"] == "" || strings.Contains(log.String(), password) {
				t.Errorf("the log is\n%s", log.String())
			}
		})
	}
}
