package lockertest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/lockertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs f in a bubble, with a Locker that is closed after it.
func bubble(t *testing.T, f func(t *testing.T, l *lockertest.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := lockertest.New()
		f(t, l)
		l.Heal()
		closeLocker(t, l)
		l.AssertFree(t)
	})
}

func closeLocker(t *testing.T, l *lockertest.Locker) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}

func acquire(t *testing.T, l locker.Locker, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	k, err := l.Acquire(t.Context(), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func want(t *testing.T, err error, sentinels ...error) {
	t.Helper()
	if len(sentinels) == 0 && err != nil {
		t.Error(err)
	}
	for _, s := range sentinels {
		if !errors.Is(err, s) {
			t.Errorf("got %v, want %v", err, s)
		}
	}
}

func wantElapsed(t *testing.T, begun time.Time, least, most time.Duration) {
	t.Helper()
	if d := time.Since(begun); d < least || d > most {
		t.Errorf("took %v, want %v to %v", d, least, most)
	}
}

// A handler under all faults, whose waits take no time.
func TestHandler(t *testing.T) {
	work := func(ctx context.Context) error {
		select {
		case <-time.After(time.Minute):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	post := func(l locker.Locker) int {
		w := httptest.NewRecorder()
		shipping(l, work)(w, httptest.NewRequest(http.MethodPost, "/ship?id=1", nil))
		return w.Code
	}
	for _, c := range []struct {
		what  string
		fault func(l *lockertest.Locker)
		at    time.Duration
		code  int
	}{
		{"none", func(*lockertest.Locker) {}, 0, 200},
		{"down", (*lockertest.Locker).Down, 0, 503},
		{"hung", (*lockertest.Locker).Hang, 0, 503},
		{"slow", func(l *lockertest.Locker) { l.Slow(3 * time.Second) }, 0, 200},
		{"too slow", func(l *lockertest.Locker) { l.Slow(11 * time.Second) }, 0, 503},
		{"held by another", func(l *lockertest.Locker) { l.Answer("order:1", locker.ErrNotAcquired) }, 0, 409},
		{"no right", func(l *lockertest.Locker) { l.Answer("order:1", errors.New("NOPERM")) }, 0, 502},
		{"lost", func(l *lockertest.Locker) { l.Lose("order:1") }, time.Second, 500},
		{"down for longer than the lease", (*lockertest.Locker).Down, time.Second, 500},
		{"hung for longer than the lease", (*lockertest.Locker).Hang, time.Second, 500},
	} {
		t.Run(c.what, func(t *testing.T) {
			bubble(t, func(t *testing.T, l *lockertest.Locker) {
				if c.at == 0 {
					c.fault(l)
				} else {
					time.AfterFunc(c.at, func() { c.fault(l) })
				}
				if code := post(l); code != c.code {
					t.Errorf("status %d, want %d", code, c.code)
				}
			})
		})
	}
}

func TestDown(t *testing.T) {
	bubble(t, func(t *testing.T, l *lockertest.Locker) {
		l.Down()
		begun := time.Now()
		_, err := l.Acquire(t.Context(), "a")
		want(t, err, locker.ErrUnavailable)
		_, err = l.TryAcquire(t.Context(), "a")
		want(t, err, locker.ErrUnavailable)
		_, err = l.Inspect(t.Context(), "a")
		want(t, err, locker.ErrUnavailable)
		_, err = l.List(t.Context())
		want(t, err, locker.ErrUnavailable)
		want(t, l.Break(t.Context(), "a", 1), locker.ErrUnavailable)
		want(t, l.Ping(t.Context()), locker.ErrUnavailable)
		wantElapsed(t, begun, 0, 0)
		if other := l.Join(); other.Ping(t.Context()) != nil {
			t.Error("another process is cut off, too")
		}
		l.Heal()
		if err := l.Ping(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A request that hangs gets its answer when the store goes on, or the end of its
// bound.
func TestHung(t *testing.T) {
	bubble(t, func(t *testing.T, l *lockertest.Locker) {
		l.Hang()
		begun := time.Now()
		_, err := l.Acquire(t.Context(), "a")
		want(t, err, locker.ErrUnavailable)
		wantElapsed(t, begun, locker.DefaultAnswerTimeout, locker.DefaultAnswerTimeout+100*time.Millisecond)

		begun = time.Now()
		time.AfterFunc(3*time.Second, l.Heal)
		k := acquire(t, l, "a")
		wantElapsed(t, begun, 3*time.Second, 3*time.Second)
		l.Hang()
		begun = time.Now()
		if err := k.Release(t.Context()); err == nil {
			t.Error("a release without an answer is no error")
		}
		wantElapsed(t, begun, locker.DefaultReleaseTimeout, locker.DefaultReleaseTimeout+100*time.Millisecond)
		l.Heal()
		time.Sleep(time.Second) // it is removed in the background
		l.AssertFree(t, "a")
	})
}

func TestSlow(t *testing.T) {
	bubble(t, func(t *testing.T, l *lockertest.Locker) {
		l.Slow(time.Second / 2)
		begun := time.Now()
		k := acquire(t, l, "a")
		wantElapsed(t, begun, time.Second/2, time.Second/2)
		if err := k.Release(t.Context()); err != nil {
			t.Error(err)
		}
		wantElapsed(t, begun, time.Second, time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/4)
		defer cancel()
		_, err := l.Acquire(ctx, "a")
		want(t, err, locker.ErrUnavailable, context.DeadlineExceeded)
	})
}

// A waiter whose store is down for a short time keeps its ticket; after Liveness
// it has lost the ticket, and queues again at the tail.
func TestWaiterInAnOutage(t *testing.T) {
	for _, c := range []struct {
		outages []time.Duration
		first   string
	}{
		{[]time.Duration{lockertest.Liveness - time.Second}, "cut off"},
		{[]time.Duration{lockertest.Liveness - time.Second, lockertest.Liveness - time.Second}, "cut off"},
		{[]time.Duration{lockertest.Liveness + time.Second}, "other"},
	} {
		t.Run(fmt.Sprint(c.outages), func(t *testing.T) {
			bubble(t, func(t *testing.T, l *lockertest.Locker) {
				cut := l.Join()
				held := acquire(t, l, "a")
				granted := make(chan string, 2)
				wait := func(l *lockertest.Locker, who string) {
					k := acquire(t, l, "a", locker.WithOwner(who))
					granted <- who
					want(t, k.Release(t.Context()))
				}
				go wait(cut, "cut off")
				synctest.Wait()
				go wait(l, "other")
				synctest.Wait()
				for _, outage := range c.outages {
					cut.Down()
					time.Sleep(outage)
					cut.Heal()
				}
				synctest.Wait()
				time.Sleep(time.Second) // it may queue again
				want(t, held.Release(t.Context()))
				if who := <-granted; who != c.first {
					t.Errorf("first was %s, want %s", who, c.first)
				}
				<-granted
				synctest.Wait()
				closeLocker(t, cut)
			})
		})
	}
}

// A grant that comes while the waiter is cut off arrives afterwards, with a lease
// of its whole length.
func TestGrantInAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, l *lockertest.Locker) {
		cut := l.Join()
		held := acquire(t, l, "a")
		got := make(chan *locker.Lock)
		go func() {
			got <- acquire(t, cut, "a", locker.WithTTL(10*time.Second), locker.WithoutRenewal())
		}()
		synctest.Wait()
		cut.Hang()
		want(t, held.Release(t.Context()))
		time.Sleep(4 * time.Second)
		select {
		case <-got:
			t.Error("the grant was heard while the store was hung")
		default:
		}
		cut.Heal()
		k := <-got
		time.Sleep(9 * time.Second)
		cut.AssertHeld(t, "a")
		if err := k.Err(); err != nil {
			t.Error("the lease was over too early:", err)
		}
		time.Sleep(time.Second)
		want(t, k.Err(), locker.ErrLost)
		closeLocker(t, cut)
	})
}

// The wait of a ticket that is queued ends at its limit, and the error says that the
// store did not answer.
func TestWaitEndsInAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, l *lockertest.Locker) {
		cut := l.Join()
		acquire(t, l, "a")
		time.AfterFunc(time.Second, cut.Down)
		_, err := cut.Acquire(t.Context(), "a", locker.WithWait(3*time.Second))
		want(t, err, locker.ErrNotAcquired, locker.ErrUnavailable)
		cut.Heal()
		closeLocker(t, cut)
		if q, err := l.Inspect(t.Context(), "a"); err != nil || len(q.Tickets) != 1 {
			t.Errorf("%v, %v: the waiter has left a ticket", q.Tickets, err)
		}
	})
}

// So does the wait on a store that hangs, if it has been silent for two seconds.
func TestWaitEndsWhileHung(t *testing.T) {
	for length, unavailable := range map[time.Duration]bool{2 * time.Second: true, 500 * time.Millisecond: false} {
		bubble(t, func(t *testing.T, l *lockertest.Locker) {
			cut := l.Join()
			acquire(t, l, "a")
			time.AfterFunc(3*time.Second-length, cut.Hang)
			_, err := cut.Acquire(t.Context(), "a", locker.WithWait(3*time.Second))
			want(t, err, locker.ErrNotAcquired)
			if errors.Is(err, locker.ErrUnavailable) != unavailable {
				t.Errorf("hung for %v: got %v", length, err)
			}
			cut.Heal()
			closeLocker(t, cut)
		})
	}
}

// An observer may take another lock away, also in the background.
func TestLoseInAnObserver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l *lockertest.Locker
		took := make(chan struct{})
		l = lockertest.New(locker.WithObserver(func(_ context.Context, e locker.Event) {
			if e.Kind == locker.EventRenewed && e.Name == "a" {
				l.Lose("b")
				close(took)
			}
		}))
		acquire(t, l, "a", locker.WithTTL(3*time.Second))
		b := acquire(t, l, "b")
		<-took
		want(t, b.Err(), locker.ErrLost)
		if g := l.Grants("b")[0]; !g.Lost || g.To.IsZero() {
			t.Errorf("the record of a lock that was taken away: %+v", g)
		}
		time.Sleep(900 * time.Millisecond) // before the next renewal
		closeLocker(t, l)
	})
}

func TestLose(t *testing.T) {
	bubble(t, func(t *testing.T, l *lockertest.Locker) {
		k, other := acquire(t, l, "a"), acquire(t, l, "b")
		standby := l.Join()
		l.AssertHeld(t, "a")
		work := k.Context(t.Context())
		l.Lose("a")
		want(t, k.Err(), locker.ErrLost)
		want(t, context.Cause(work), locker.ErrLost)
		if err := other.Err(); err != nil {
			t.Error("another lock was lost:", err)
		}
		if k, err := standby.TryAcquire(t.Context(), "a"); err != nil {
			t.Error(err)
		} else {
			want(t, k.Release(t.Context()))
		}
		want(t, k.Release(t.Context()), locker.ErrLost)
		closeLocker(t, standby)
		defer func() {
			if recover() == nil {
				t.Error("Lose of a lock that is not held did not panic")
			}
		}()
		l.Lose("a")
	})
}

// A pushed loss does not reach a holder that is cut off: the lock ends with its lease.
func TestNoPushInAnOutage(t *testing.T) {
	bubble(t, func(t *testing.T, l *lockertest.Locker) {
		cut := l.Join()
		k := acquire(t, cut, "a", locker.WithTTL(10*time.Second))
		cut.Hang()
		if err := l.Break(t.Context(), "a", k.Token()); err != nil {
			t.Fatal(err)
		}
		if err := k.Err(); err != nil {
			t.Error("the loss was reported at once:", err)
		}
		time.Sleep(10 * time.Second)
		want(t, k.Err(), locker.ErrLost)
		cut.Heal()
		closeLocker(t, cut)
	})
}

func TestAnswer(t *testing.T) {
	bubble(t, func(t *testing.T, l *lockertest.Locker) {
		refused := errors.New("NOPERM")
		l.Answer("a", refused, nil, locker.ErrUnavailable, locker.ErrNotAcquired, locker.ErrNotAcquired, locker.ErrNotAcquired)
		try := func() (*locker.Lock, error) { return l.TryAcquire(t.Context(), "a") }
		_, err := try()
		want(t, err, refused)
		k, err := try()
		if err != nil {
			t.Fatal(err)
		}
		want(t, k.Release(t.Context()))
		_, err = try()
		want(t, err, locker.ErrUnavailable)
		_, err = try()
		want(t, err, locker.ErrNotAcquired)
		begun := time.Now()
		_, err = l.Acquire(t.Context(), "a", locker.WithWait(time.Minute))
		want(t, err, locker.ErrNotAcquired)
		wantElapsed(t, begun, time.Minute, time.Minute+100*time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = l.Acquire(ctx, "a")
		want(t, err, context.DeadlineExceeded)
		if errors.Is(err, locker.ErrUnavailable) {
			t.Error("a waiter whose store answers got", err)
		}
		want(t, acquire(t, l, "a").Release(t.Context()))
	})
}
