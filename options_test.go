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
	l := locker.New(memory.New(), nil)
	t.Cleanup(func() { _ = l.Close() })
	return l
}
