package compose_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/compose"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// limits are the ways in which a caller gives up.
var limits = map[string]func(context.Context) (context.Context, []locker.Option, error){
	"wait limit": func(ctx context.Context) (context.Context, []locker.Option, error) {
		return ctx, []locker.Option{locker.WithWait(5 * time.Second)}, locker.ErrNotAcquired
	},
	"deadline": func(ctx context.Context) (context.Context, []locker.Option, error) {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		context.AfterFunc(ctx, cancel)
		return ctx, nil, context.DeadlineExceeded
	},
	"cancel": func(ctx context.Context) (context.Context, []locker.Option, error) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(5*time.Second, cancel)
		return ctx, nil, context.Canceled
	},
}

// An error matches ErrUnavailable exactly when a store could not be reached that the lock
// depends on, also if the ticket is queued.
func TestUnavailableWhileQueued(t *testing.T) {
	all := func(a, b driver.Driver) driver.Driver { return compose.All(a, b) }
	fallback := func(a, b driver.Driver) driver.Driver { return compose.Fallback(a, b) }
	for _, c := range []struct {
		name    string
		compose func(a, b driver.Driver) driver.Driver
		away    bool          // the first store is away from the beginning
		held    int           // the store on which the lock is held
		release time.Duration // after which it is released there
		ttl     time.Duration // 6 s if it is 0
		fails   int           // the store that fails
		after   time.Duration // after which it fails
		want    bool          // ErrUnavailable
	}{
		{name: "all: held on the first", compose: all, held: 0, fails: -1},
		{name: "all: held on the second", compose: all, held: 1, fails: -1},
		{name: "all: the first fails while it is held there", compose: all, held: 0, fails: 0, after: time.Second, want: true},
		{name: "all: the second fails while it is held there", compose: all, held: 1, fails: 1, after: time.Second, want: true},
		{name: "all: the first fails while the second is waited for, and is lost", compose: all, ttl: 2 * time.Second, held: 1, fails: 0, after: time.Second, want: true},
		{name: "all: the first fails while the second is waited for", compose: all, ttl: time.Minute, held: 1, fails: 0, after: time.Second, want: true},
		{name: "all: the second fails while the first is waited for", compose: all, held: 0, fails: 1, after: time.Second, want: true},
		{name: "all: the second fails before it is asked", compose: all, held: 0, release: 2 * time.Second, fails: 1, after: time.Second, want: true},
		{name: "fallback: held on the primary", compose: fallback, held: 0, fails: -1},
		{name: "fallback: the primary fails while it is held there", compose: fallback, held: 0, fails: 0, after: time.Second, want: true},
		{name: "fallback: held on the secondary", compose: fallback, away: true, held: 1, fails: -1},
		{name: "fallback: the secondary fails while it is held there", compose: fallback, away: true, held: 1, fails: 1, after: 3 * time.Second, want: true},
		{name: "fallback in all: held on the secondary", away: true, held: 1, fails: -1, compose: func(a, b driver.Driver) driver.Driver {
			return compose.TokenBase(compose.All(memory.New(), fallback(a, b)), 1)
		}},
	} {
		for _, fault := range []string{"away", "hangs"} {
			for limit, give := range limits {
				t.Run(c.name+"/"+fault+"/"+limit, func(t *testing.T) {
					bubble(t, func(t *testing.T) {
						stores := [2]*memory.Driver{memory.New(), memory.New()}
						parts := [2]*waits{{&flaky{Driver: stores[0].Join()}}, {&flaky{Driver: stores[1].Join()}}}
						other := locker.New(stores[c.held])
						l := locker.New(c.compose(parts[0], parts[1]))
						k := acquire(t, other)
						fail := func(i int) {
							if i >= 0 {
								map[string]interface{ Store(bool) }{"away": &parts[i].away, "hangs": &parts[i].hangs}[fault].Store(true)
							}
						}
						if c.away {
							fail(0)
						}
						time.AfterFunc(c.after, func() { fail(c.fails) })
						if c.release > 0 {
							time.AfterFunc(c.release, func() { release(t, k) })
						}
						ctx, opts, want := give(t.Context())
						_, err := l.Acquire(ctx, "x", append(opts, locker.WithTTL(cmp.Or(c.ttl, 6*time.Second)))...)
						if !errors.Is(err, want) && (c.release == 0 || !errors.Is(err, locker.ErrUnavailable)) || errors.Is(err, locker.ErrLost) {
							t.Errorf("%v, want it to match %v", err, want)
						}
						if got := errors.Is(err, locker.ErrUnavailable); got != c.want {
							t.Errorf("ErrUnavailable: %v, want %v: %v", got, c.want, err)
						}
						for _, p := range parts {
							p.away.Store(false)
							p.hangs.Store(false)
						}
						if c.release == 0 {
							release(t, k)
						}
						if err := errors.Join(l.Close(), other.Close()); err != nil {
							t.Error(err)
						}
					})
				})
			}
		}
	}
}

// waits is a store whose waiters learn that it cannot be reached, as D7 says. The error
// of the others has more than the end of the context, too.
type waits struct{ *flaky }

func (w waits) Bounds(ttl time.Duration) driver.Bounds {
	b := w.flaky.Bounds(ttl)
	b.Silence = time.Second
	return b
}

func (w waits) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	queued := false
	if joined := r.Joined; joined != nil {
		r.Joined = func() { queued = true; joined() }
	}
	g, err := w.flaky.Acquire(ctx, r)
	switch {
	case !queued || ctx.Err() == nil:
	case w.away.Load() || w.hangs.Load():
		err = errors.Join(context.Cause(ctx), errDown)
	default:
		err = errors.Join(context.Cause(ctx), errors.New("a remark of the store"))
	}
	return g, err
}

// denied is a store that refuses to renew.
type denied struct{ *memory.Driver }

func (denied) Renew(context.Context, driver.Hold, time.Duration) error {
	return errors.New("permission denied")
}

// A renewal that failed on several stores reports all of them, by name.
func TestAllReportsEveryStoreThatDidNotRenew(t *testing.T) {
	bubble(t, func(t *testing.T) {
		away := &flaky{Driver: memory.New()}
		m := compose.All(away, named{memory.New(), "third"}, denied{memory.New()})
		defer m.Close()
		r := driver.Request{Name: "x", ID: "1", TTL: time.Minute}
		g, err := m.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		away.away.Store(true)
		err = m.Renew(t.Context(), r.Hold(g.Token), time.Minute)
		for _, want := range []string{"connection refused", "permission denied", "memory: "} {
			if err == nil || !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(fmt.Sprint(err), want) {
				t.Errorf("%v, want %q in it", err, want)
			}
		}
		away.away.Store(false)
	})
}

// mute is a store whose waiters do not learn that it cannot be reached.
type mute struct{ *flaky }

func (m mute) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	return m.flaky.Driver.Acquire(ctx, r)
}

// A ticket that the primary has queued waits there. If the primary is away at the end, the
// error says so, though the secondary answers whoever inspects the queue.
func TestFallbackQueuedOnASilentPrimary(t *testing.T) {
	for limit, give := range limits {
		t.Run(limit, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a := memory.New()
				first := &flaky{Driver: a.Join()}
				l, other := locker.New(compose.Fallback(mute{first}, memory.New())), locker.New(a)
				k := acquire(t, other)
				time.AfterFunc(time.Second, func() { first.hangs.Store(true) })
				ctx, opts, want := give(t.Context())
				go func() { // somebody looks
					for range 4 {
						time.Sleep(time.Second)
						within, cancel := context.WithTimeout(t.Context(), time.Second)
						if _, err := l.Inspect(within, "x"); err != nil {
							t.Error(err)
						}
						cancel()
					}
				}()
				if _, err := l.Acquire(ctx, "x", opts...); !errors.Is(err, want) || !errors.Is(err, locker.ErrUnavailable) {
					t.Errorf("%v, want it to match %v and ErrUnavailable", err, want)
				}
				first.hangs.Store(false)
				release(t, k)
				if err := errors.Join(l.Close(), other.Close()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// The same for a ticket that the secondary has queued, when the primary is back.
func TestFallbackQueuedOnASilentSecondary(t *testing.T) {
	for limit, give := range limits {
		t.Run(limit, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				b := memory.New()
				first, second := &flaky{Driver: memory.New()}, &flaky{Driver: b.Join()}
				l, other := locker.New(compose.Fallback(first, mute{second})), locker.New(b)
				k := acquire(t, other)
				first.away.Store(true)
				time.AfterFunc(500*time.Millisecond, func() { first.away.Store(false) })
				time.AfterFunc(2*time.Second, func() { second.hangs.Store(true) })
				ctx, opts, want := give(t.Context()) // 5 s
				if _, err := l.Acquire(ctx, "x", opts...); !errors.Is(err, want) || !errors.Is(err, locker.ErrUnavailable) {
					t.Errorf("%v, want it to match %v and ErrUnavailable", err, want)
				}
				second.hangs.Store(false)
				release(t, k)
				if err := errors.Join(l.Close(), other.Close()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
