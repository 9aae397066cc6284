// Package lockerslog logs what happens to the locks of a [locker.Client] with log/slog: an
// audit log of who held what, when, and for how long. Begin with [Observer].
//
//	import lockerslog "github.com/lockerproject/locker/observe/slog"
//
//	l, err := locker.Open(ctx, url, lockerslog.Observer(logger))
//
// Every lock that was held has a record when it is acquired and one when it is released or
// lost. The second has all facts about the lock:
//
//	level=INFO msg="lock released" lock=order:42 owner=web-1/4711/5f0c store="redis db:6379/0" fencing_token=17 mode=exclusive acquisition=3 since=2026-03-01T09:30:00.000Z held_seconds=4.2
//
// The attributes are:
//
//   - lock, owner, store: the name of the lock, its owner, and the store
//   - fencing_token: the fencing token, from the grant on
//   - mode: exclusive or shared
//   - seconds: how long the call, or the renewal, took
//   - since, held_seconds: when the lock was granted, and how long it was held
//   - waited: whether the acquisition had to wait in the queue
//   - degraded, cause: present if a substitute for the store has granted the lock
//     (compose.Fallback), and why
//   - error, unavailable: present after a failure; the error, and whether the store did not
//     answer
//
// acquisition is a number that all records of one acquisition and its lock have in common;
// it is unique in the process. No record contains a password.
//
// Each record has the context of the call, so that handlers find the span that it belongs
// to.
package lockerslog

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/lockerproject/locker"
)

// Observer is the option for [locker.New] and [locker.Open] that logs the Client's events.
// If logger is nil, it uses slog.Default at the time of each event.
//
// The levels are those of [Level], unless levels sets others, as in a program that audits
// refusals too:
//
//	lockerslog.Observer(logger, func(e locker.Event) slog.Level {
//		return max(lockerslog.Level(e), slog.LevelInfo)
//	})
func Observer(logger *slog.Logger, levels ...func(locker.Event) slog.Level) locker.ClientOption {
	level := Level
	for _, f := range levels {
		if f != nil {
			level = f
		}
	}
	return locker.WithObserver(func(ctx context.Context, e locker.Event) {
		to := logger
		if to == nil {
			to = slog.Default()
		}
		if l := level(e); to.Enabled(ctx, l) {
			to.LogAttrs(ctx, l, message(e.Kind), attributes(e)...)
		}
	})
}

// Level is the level of an event: Error for a lock that was lost; Warn for a renewal that
// failed, a release that the store has not confirmed, a ticket that was lost while it
// waited, a grant by a substitute, and an acquisition that failed; Info for a lock that was
// acquired or released; and Debug for what happens in between, and for an acquisition that
// was refused, or that its caller gave up.
func Level(e locker.Event) slog.Level {
	switch e.Kind {
	case locker.EventLost:
		return slog.LevelError
	case locker.EventRejoined, locker.EventRenewFailed:
		return slog.LevelWarn
	case locker.EventAcquired, locker.EventReleased:
		if e.Degraded != nil || e.Err != nil {
			return slog.LevelWarn
		}
		return slog.LevelInfo
	case locker.EventFailed:
		if isRefusal(e.Err) {
			return slog.LevelDebug
		}
		return slog.LevelWarn
	default:
		return slog.LevelDebug
	}
}

// isRefusal reports whether an acquisition failed since somebody else has the lock, or the
// caller ended it.
func isRefusal(err error) bool {
	if errors.Is(err, locker.ErrUnavailable) {
		return false
	}
	return errors.Is(err, locker.ErrNotAcquired) || errors.Is(err, locker.ErrClosed) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// message is constant for a kind, so that records can be found by it.
func message(k locker.EventKind) string {
	switch k {
	case locker.EventWaiting:
		return "waiting for lock"
	case locker.EventRejoined:
		return "queued again for lock"
	case locker.EventRenewFailed:
		return "lock renewal failed"
	case locker.EventFailed:
		return "lock not acquired"
	default:
		return "lock " + k.String()
	}
}

func attributes(e locker.Event) []slog.Attr {
	mode := "exclusive"
	if e.Shared {
		mode = "shared"
	}
	all := make([]slog.Attr, 0, 12)
	all = append(all, slog.String("lock", e.Name), slog.String("owner", e.Owner), slog.String("store", e.Store))
	if e.Token != 0 {
		all = append(all, slog.Uint64("fencing_token", e.Token))
	}
	all = append(all, slog.String("mode", mode), slog.Uint64("acquisition", e.ID))
	switch e.Kind {
	case locker.EventReleased, locker.EventLost:
		all = append(all, slog.Time("since", time.Now().Add(-e.Elapsed)), slog.Float64("held_seconds", seconds(e.Elapsed)))
	case locker.EventAcquired, locker.EventReentered, locker.EventFailed:
		all = append(all, slog.Float64("seconds", seconds(e.Elapsed)), slog.Bool("waited", e.Waited))
	default:
		all = append(all, slog.Float64("seconds", seconds(e.Elapsed)))
	}
	if e.Degraded != nil {
		all = append(all, slog.Bool("degraded", true), slog.String("cause", e.Degraded.Error()))
	}
	if e.Err != nil {
		all = append(all, slog.String("error", e.Err.Error()), slog.Bool("unavailable", errors.Is(e.Err, locker.ErrUnavailable)))
	}
	return all
}

// seconds is d to the microsecond, as a number that is printed with no more digits.
func seconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e6 }
