package redis_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testbed/versions"
)

// uses are all requests that a Locker may send to the store first.
func uses(l *locker.Client, name string) map[string]func(t *testing.T) error {
	return map[string]func(t *testing.T) error{
		"Acquire": func(t *testing.T) error {
			t.Helper()
			_, err := l.Acquire(t.Context(), name, locker.WithWait(time.Second))
			return err
		},
		"TryAcquire": func(t *testing.T) error {
			t.Helper()
			_, err := l.TryAcquire(t.Context(), name, locker.Shared())
			return err
		},
		"Inspect": func(t *testing.T) error { t.Helper(); _, err := l.Inspect(t.Context(), name); return err },
		"List":    func(t *testing.T) error { t.Helper(); _, err := l.List(t.Context()); return err },
		"Break":   func(t *testing.T) error { t.Helper(); return l.Break(t.Context(), name, 1) },
		"Ping":    func(t *testing.T) error { t.Helper(); return l.Ping(t.Context()) },
	}
}

func TestProtocolVersion(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	c := dial(t, srv.Addr())
	prefix := newName()
	key := prefix + ":protocol"
	versions.Prove(t, versions.Store{
		Open: func(t *testing.T, other bool) *locker.Client {
			t.Helper()
			url := srv.URL() + "?prefix=" + prefix
			if other { // its locks would be at other keys
				url += "&key_form=" + prefix + "/*"
			}
			return process(t, url)
		},
		Get: func() string { return c.Get(t.Context(), key).Val() },
		Set: func(version string) {
			c.Set(t.Context(), key, version, 0)
			if version == "" {
				c.Del(t.Context(), key)
			}
		},
		Where: key,
	})
}

// TestVersionIsReadOnce: the version is read once. After the loss of all data, a
// running program goes on, and the next new one writes the version again.
func TestVersionIsReadOnce(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	c := dial(t, srv.Addr())
	l := process(t, srv.URL())
	release(t, take(t, l, "a"))
	before := calls(t, c)
	for range 10 {
		release(t, take(t, l, "a"))
	}
	if n := calls(t, c) - before; n != 20 {
		t.Errorf("%d scripts for ten cycles, want 20", n)
	}
	c.FlushAll(t.Context())
	release(t, take(t, l, "a"))
	release(t, take(t, process(t, srv.URL()), "a"))
	if v := c.Get(t.Context(), "locker:protocol").Val(); v != redisqueue.Version {
		t.Errorf("the version in the store is %q", v)
	}
}

// TestOtherKeyForm: two programs whose locks would be at different keys do not exclude
// each other: the second gets an error.
func TestOtherKeyForm(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	url := srv.URL() + "?prefix=" + newName()
	release(t, take(t, process(t, url), "a"))
	_, err := process(t, url+"&key_form="+newName()+"*").Acquire(t.Context(), "a")
	if err == nil || !strings.Contains(err.Error(), `version "`+redisqueue.Version+` key_form=`) {
		t.Errorf("another form of keys: %v", err)
	}
}

// TestNothingOfWaitersStays: when the only waiter gives up while another holds, nothing
// of the queue stays but the holder, not even for seconds.
func TestNothingOfWaitersStays(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	c := dial(t, srv.Addr())
	var giveUp context.CancelFunc
	l := process(t, srv.URL(), locker.WithObserver(func(_ context.Context, e locker.Event) {
		if e.Kind == locker.EventWaiting {
			giveUp()
		}
	}))
	for _, opts := range [][]locker.Option{nil, {locker.Shared()}} {
		k := take(t, l, "a")
		var ctx context.Context
		ctx, giveUp = context.WithCancel(t.Context())
		_, err := l.Acquire(ctx, "a", opts...)
		giveUp()
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("while another holds: %v", err)
		}
		await(t, l, "a", 1) // the ticket is removed in the background if the server is slow
		if keys, _ := lasting(t, c, "locker:{a}*"); len(keys) != 1 {
			t.Errorf("%q while one holds and nobody waits", keys)
		}
		release(t, k)
	}
}

// TestKeyForm: a driver with another form of keys can do all that the usual one can,
// and leaves nothing more behind.
func TestKeyForm(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	c := dial(t, srv.Addr())
	head := newName()
	url := srv.URL() + "?prefix=" + head + "&key_form=" + head + "/*"
	l, other := process(t, url), process(t, url)
	for _, name := range []string{"a", "a:x", "a\xc3\xbf", "{a}", "*", "protocol", "}"} {
		for _, opts := range [][]locker.Option{nil, {locker.Shared()}, {locker.Limit(2)}} {
			k := take(t, l, name, append(opts, locker.WithTTL(time.Minute))...)
			if n := c.Exists(t.Context(), head+"/"+name).Val(); n != 1 {
				t.Errorf("%q is not held at its key", name)
			}
			got := acquiring(t, other, name)
			await(t, l, name, 2)
			if list, err := l.List(t.Context()); err != nil || len(list) != 1 || list[0] != name {
				t.Errorf("List: %q, %v", list, err)
			}
			if err := k.Extend(t.Context(), 2*time.Minute); err != nil {
				t.Error(err)
			}
			release(t, k)
			k, _ = within(t, got, time.Second)
			if err := l.Break(t.Context(), name, k.Token()); err != nil {
				t.Error(err)
			}
			<-k.Done()
		}
	}
	// The keys of a ticket are not those of another name.
	k := take(t, l, "b", locker.Shared())
	for _, end := range []string{":h", ":e", ":t", ":x"} {
		release(t, take(t, l, "b"+end))
	}
	release(t, k)
	if keys, _ := lasting(t, c, head+"/*"); len(keys) != 0 {
		t.Errorf("%q stay", keys)
	}
	c.Set(t.Context(), head+"/text", "lock", 0)
	c.HSet(t.Context(), head+"/hash", "a", "b")
	if list, err := l.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("List of what is no lock: %q, %v", list, err)
	}
	if err := l.Ping(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestOwnKeys: a name whose key would be one of the driver's own is refused.
func TestOwnKeys(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedRedis(t)
	prefix := newName()
	l := process(t, srv.URL()+"?key_form=*&prefix="+prefix)
	for _, end := range []string{":fence", ":protocol", ":fences"} {
		for verb, use := range uses(l, prefix+end) {
			if verb == "List" || verb == "Ping" {
				continue
			}
			if err := use(t); !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "another prefix") {
				t.Errorf("%s of %s: %v", verb, end, err)
			}
		}
	}
	release(t, take(t, l, prefix))
}

// TestKeyFormInCluster: all keys of a name are in one slot, by the form's hash tag.
func TestKeyFormInCluster(t *testing.T) {
	t.Parallel()
	cluster := testbed.RedisCluster(t)
	if _, err := locker.Open(t.Context(), cluster.URL()+"?key_form=lock:*"); err == nil || !strings.Contains(err.Error(), "want braces") {
		t.Errorf("a form without a hash tag: %v", err)
	}
	url := cluster.URL() + "?key_form=lock:{*}"
	l, other := process(t, url), process(t, url)
	for range 5 {
		name := newName()
		k := take(t, l, name, locker.Limit(2))
		got := acquiring(t, other, name)
		await(t, l, name, 2)
		if list, err := l.List(t.Context()); err != nil || len(list) != 1 || list[0] != name {
			t.Errorf("List: %q, %v", list, err)
		}
		if err := k.Extend(t.Context(), time.Minute); err != nil {
			t.Error(err)
		}
		release(t, k)
		k, _ = within(t, got, time.Second)
		release(t, k)
	}
	if _, err := l.Acquire(t.Context(), "}a"); !errors.Is(err, driver.ErrUnsupported) {
		t.Errorf("a name that leaves no hash tag: %v", err)
	}
}
