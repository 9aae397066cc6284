// Package rights tests access rights on a store with authentication: a user with the
// documented rights can do all that a Locker does, and a user without them gets an error
// that says so.
package rights

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker"
)

// patience is how long anything may take here.
const patience = 10 * time.Second

// Use has two clients do all that needs rights of the store: hold, try, extend,
// wait, hand over, inspect, list and break a lock, and be notified of the break.
func Use(t *testing.T, a, b *locker.Client) {
	t.Helper()
	ctx := t.Context()
	k, err := a.Acquire(ctx, t.Name(), locker.WithTTL(patience))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.TryAcquire(ctx, t.Name()); !errors.Is(err, locker.ErrNotAcquired) {
		t.Errorf("a try for a held lock: %v, want ErrNotAcquired", err)
	}
	if err := k.Extend(ctx, time.Minute); err != nil {
		t.Errorf("extend: %v", err)
	}
	next := handOver(t, k, a, b)
	if next == nil {
		return
	}
	if names, err := a.List(ctx); err != nil || !slices.Contains(names, t.Name()) {
		t.Errorf("List: %q, %v", names, err)
	}
	time.Sleep(400 * time.Millisecond) // drivers are notified of breaks of what was held for a moment
	if err := a.Break(ctx, t.Name(), next.Token()); err != nil {
		t.Errorf("break: %v", err)
	}
	select {
	case <-next.Done():
	case <-time.After(2 * time.Second): // before the next renewal
		t.Error("the break was not reported")
	}
}

// handOver releases a's lock to b, who waits for it; nil: it was not granted.
func handOver(t *testing.T, k *locker.Lock, a, b *locker.Client) *locker.Lock {
	t.Helper()
	granted := make(chan *locker.Lock, 1)
	go func() {
		k, err := b.Acquire(t.Context(), t.Name(), locker.WithWait(patience))
		if err != nil {
			t.Errorf("wait: %v", err)
		}
		granted <- k
	}()
	for end := time.Now().Add(patience); ; {
		queue, err := a.Inspect(t.Context(), t.Name())
		if err != nil || time.Now().After(end) {
			t.Fatalf("inspect: %+v, %v: want two tickets", queue, err)
		}
		if len(queue.Tickets) == 2 {
			break
		}
	}
	if err := k.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	return <-granted
}

// Refused has the opening of a store, or an acquisition there, fail with an
// error that says want and none of the secrets.
func Refused(t *testing.T, url, want string, secrets ...string) {
	t.Helper()
	_ = refused(t, url, want, secrets, func(ctx context.Context, l *locker.Client) error {
		_, err := l.Acquire(ctx, t.Name())
		return err
	})
}

// PingRefused has a Ping fail with an error that says want, what is missing, and none
// of the secrets; and not as if the store were down.
func PingRefused(t *testing.T, url, want string, secrets ...string) {
	t.Helper()
	err := refused(t, url, want, secrets, func(ctx context.Context, l *locker.Client) error { return l.Ping(ctx) })
	if errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("Ping: %v: the store is not down", err)
	}
}

func refused(t *testing.T, url, want string, secrets []string, ask func(context.Context, *locker.Client) error) error {
	t.Helper()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l, err := locker.Open(ctx, url)
	if err == nil {
		t.Cleanup(func() { _ = l.Close() })
		err = ask(ctx, l)
	}
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want an error that says %q", err, want)
		return err
	}
	for _, s := range secrets {
		if strings.Contains(err.Error(), s) {
			t.Errorf("%v shows the secret %q", err, s)
		}
	}
	t.Logf("after %v: %v", time.Since(begun).Round(time.Millisecond), err)
	return err
}
