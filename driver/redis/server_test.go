package redis_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
)

// hello makes a server answer HELLO as another one does.
type hello struct{ answer []any }

func (h hello) DialHook(next goredis.DialHook) goredis.DialHook { return next }

func (h hello) ProcessPipelineHook(next goredis.ProcessPipelineHook) goredis.ProcessPipelineHook {
	return next
}

func (h hello) ProcessHook(next goredis.ProcessHook) goredis.ProcessHook {
	return func(ctx context.Context, cmd goredis.Cmder) error {
		if c, ok := cmd.(*goredis.Cmd); ok && cmd.Name() == "hello" && len(cmd.Args()) == 1 {
			c.SetVal(h.answer)
			return nil
		}
		return next(ctx, cmd)
	}
}

// TestActiveReplica: a server whose peers grant locks too is refused by Ping and by the
// first Acquire, which leaves no ticket.
func TestActiveReplica(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	for role, want := range map[string]error{"active-replica": driver.ErrUnsupported, "master": nil} {
		c := dial(t, srv.Addr())
		// As KeyDB 6.3 answers.
		c.AddHook(hello{[]any{"server", "redis", "version", "6.3.4", "proto", int64(2), "id", int64(3), "mode", "standalone", "role", role, "modules", []any{}}})
		d := openOver(t, c)
		r := driver.Request{Name: newName(), ID: newName(), TTL: time.Minute}
		_, err := d.Acquire(t.Context(), r)
		if !errors.Is(err, want) || want != nil && (!errors.Is(err, driver.ErrNoTicket) || !strings.Contains(err.Error(), "KeyDB")) {
			t.Errorf("%s: Acquire: %v", role, err)
		}
		if err := d.Ping(t.Context()); !errors.Is(err, want) {
			t.Errorf("%s: Ping: %v", role, err)
		}
		if want == nil {
			_ = d.Release(t.Context(), r.Hold(0))
		}
	}
}

// deaf makes a user that may not subscribe, and returns the URL for it.
func deaf(t *testing.T, srv *testbed.Server) string {
	t.Helper()
	err := dial(t, srv.Addr()).Do(t.Context(), "ACL", "SETUSER", "deaf", "on", ">secret", "~*", "&*", "+@all", "-subscribe").Err()
	if err != nil {
		t.Fatal(err)
	}
	return "redis://deaf:secret@" + srv.Addr()
}

// Where SUBSCRIBE is refused, waiters poll, however many a process has.
func TestNoSubscription(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	d, other := openAt(t, deaf(t, srv)), openAt(t, srv.URL())
	if err := d.Ping(t.Context()); err != nil {
		t.Errorf("ping: %v", err)
	}
	r := driver.Request{Name: newName(), ID: newName(), TTL: time.Minute}
	g, err := other.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	const n = 40
	granted := make(chan driver.Hold, n)
	for range n {
		w := r
		w.ID, w.Wait, w.Shared = newName(), true, true
		joined := make(chan struct{})
		w.Joined = func() { close(joined) }
		go func() {
			g, err := d.Acquire(t.Context(), w)
			if err != nil {
				t.Error(err)
			}
			granted <- w.Hold(g.Token)
		}()
		<-joined
	}
	if err := other.Release(t.Context(), r.Hold(g.Token)); err != nil {
		t.Fatal(err)
	}
	took := srv.Elapsed(func() {
		for range n {
			if err := d.Release(t.Context(), <-granted); err != nil {
				t.Error(err)
			}
		}
	})
	if took > 500*time.Millisecond {
		t.Errorf("%d waiters were granted within %v", n, took)
	}
}

// unnotified is a driver that learns of losses when it renews.
type unnotified struct{ redisDriver }

// redisDriver is what remains of the driver: all but NotifyLoss.
type redisDriver interface {
	driver.Driver
	driver.BatchRenewer
	driver.Lister
	driver.Breaker
	driver.Shortener
	driver.Bounder
	driver.Pinger
}

func TestConformanceDeaf(t *testing.T) {
	testbed.Nightly(t, "run it after a change to heartbeats or to the subscription")
	srv := testbed.Redis(t)
	url := deaf(t, srv)
	conformance.Run(t, conformance.Harness{
		Open: func(ctx context.Context) (driver.Driver, error) {
			u, err := driver.ParseURL(url + "?prefix=conformance")
			if err != nil {
				return nil, err
			}
			d, err := driver.Open(ctx, u)
			return unnotified{d.(*redis.Driver)}, err
		},
	})
}
