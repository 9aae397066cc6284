package locker_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

func TestInvalidOptionsAndNames(t *testing.T) {
	s := newStub()
	s.acquire = func(context.Context, driver.Request, acquireFunc) (driver.Grant, error) {
		t.Error("the store was touched")
		return driver.Grant{}, errDown
	}
	l := locker.New(s)
	defer l.Close()
	ctx := context.Background()
	long := strings.Repeat("x", 513)
	for name, o := range map[string]locker.Option{
		"zero TTL": locker.WithTTL(0), "negative TTL": locker.WithTTL(-time.Second),
		"TTL without a unit": locker.WithTTL(5), "negative minimum hold": locker.WithMinHold(-1),
		"zero limit": locker.Limit(0), "negative limit": locker.Limit(-1),
		"negative wait": locker.WithWait(-1), "empty owner": locker.WithOwner(""),
		"long owner": locker.WithOwner(long), "owner not UTF-8": locker.WithOwner("\xff"),
		"long note": locker.WithNote(long), "note not UTF-8": locker.WithNote("\xff"),
	} {
		_, err := l.Acquire(ctx, "a", o)
		if !errors.Is(err, locker.ErrInvalidOption) {
			t.Errorf("%s: %v", name, err)
		}
		_, err = l.TryAcquire(ctx, "a", nil, o)
		want(t, err, locker.ErrInvalidOption)
	}
	for _, name := range []string{"", long, "a\xffb"} {
		_, err := l.Acquire(ctx, name)
		want(t, err, locker.ErrInvalidName)
		_, err = l.Inspect(ctx, name)
		want(t, err, locker.ErrInvalidName)
		_, err = locker.AcquireAll(ctx, l, []string{"a", name})
		want(t, err, locker.ErrInvalidName)
	}
	_, err := locker.AcquireAll(ctx, l, nil)
	want(t, err, locker.ErrInvalidName)
	margined := locker.New(memory.New(), locker.WithSafetyMargin(time.Second))
	defer margined.Close()
	_, err = margined.Acquire(ctx, "a", locker.WithTTL(time.Second))
	want(t, err, locker.ErrInvalidOption)
	acquire(t, newClient(t), "a", nil, locker.WithNote(strings.Repeat("x", 512)))
}

func newClient(t *testing.T) *locker.Client {
	l := locker.New(memory.New(), nil, locker.WithDefaults(nil))
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// Invalid options of a Client are found by Open, and by each call of a Client that New has
// made, before the store is touched.
func TestInvalidClientOptions(t *testing.T) {
	ctx := context.Background()
	for what, o := range map[string]locker.ClientOption{
		"answer timeout":  locker.WithAnswerTimeout(0),
		"release timeout": locker.WithReleaseTimeout(-time.Second),
		"safety margin":   locker.WithSafetyMargin(-time.Second),
	} {
		_, err := locker.Open(ctx, "memory://invalid", o)
		if !errors.Is(err, locker.ErrInvalidOption) || !strings.Contains(err.Error(), what) {
			t.Errorf("Open with an invalid %s: %v", what, err)
		}
		l := locker.New(memory.New(), o)
		for verb, call := range map[string]func() error{
			"Acquire":       func() error { _, err := l.Acquire(ctx, "a"); return err },
			"TryAcquire":    func() error { _, err := l.TryAcquire(ctx, "a"); return err },
			"Inspect":       func() error { _, err := l.Inspect(ctx, "a"); return err },
			"List":          func() error { _, err := l.List(ctx); return err },
			"Break":         func() error { return l.Break(ctx, "a", 1) },
			"Ping":          func() error { return l.Ping(ctx) },
			"ServerVersion": func() error { _, err := locker.New(versioned{memory.New()}, o).ServerVersion(ctx); return err },
		} {
			if err := call(); !errors.Is(err, locker.ErrInvalidOption) || !strings.Contains(err.Error(), what) {
				t.Errorf("%s with an invalid %s: %v", verb, what, err)
			}
		}
		_ = l.Close()
	}
}

type versioned struct{ *memory.Driver }

func (versioned) ServerVersion(context.Context) (string, error) { return "", nil }

// The IDs of tickets are drawn one by one: nothing of the process is in them, which a clone
// of it would have too.
func TestTicketIDs(t *testing.T) {
	s := newStub()
	var ids []string
	s.acquire = func(ctx context.Context, r driver.Request, next acquireFunc) (driver.Grant, error) {
		ids = append(ids, r.ID)
		return next(ctx, r)
	}
	l := locker.New(s)
	defer l.Close()
	for range 1000 {
		release(t, acquire(t, l, "a"))
	}
	same := [64]int{} // how many IDs have the character of the first ID there
	for _, id := range ids {
		if len(id) != len(ids[0]) || len(id) > 64 || strings.Trim(id, "0123456789abcdefghijklmnopqrstuvwxyz-") != "" {
			t.Fatalf("ID %q", id)
		}
		for i := range id {
			if id[i] == ids[0][i] {
				same[i]++
			}
		}
	}
	for i := range ids[0] {
		if same[i] > 200 {
			t.Errorf("%d of 1000 IDs have the same character %d", same[i], i)
		}
	}
}

// Without WithOwner the owner is the Client, which each Inspect shows.
func TestOwnerByDefault(t *testing.T) {
	s := newStub()
	owner := func(l *locker.Client, name string) string {
		k := acquire(t, l, name)
		defer release(t, k)
		if q, err := l.Inspect(t.Context(), name); err != nil || len(q.Tickets) != 1 || q.Tickets[0].Owner != k.Owner() {
			t.Errorf("Inspect: %v, %v; the lock's owner is %q", q, err, k.Owner())
		}
		return k.Owner()
	}
	l, other := locker.New(s), locker.New(newStub())
	defer l.Close()
	defer other.Close()
	if a, b, c := owner(l, "a"), owner(l, "b"), owner(other, "a"); a == "" || a != b || a == c {
		t.Errorf("the owners are %q and %q, and of another Client %q", a, b, c)
	}
}
