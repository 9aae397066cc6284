package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/corrupttest"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestCorruptQueue: nobody is granted past a row that no program of ours has written.
func TestCorruptQueue(t *testing.T) {
	t.Parallel()
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	l := newLocker(t, d)
	ok(t, d.Ping(t.Context()))
	k, err := l.Acquire(t.Context(), "makes the tables")
	ok(t, err)
	ok(t, k.Release(t.Context()))
	_, err = p.Exec(t.Context(), "INSERT INTO "+prefix+"_processes VALUES (-1, -1, '9999-12-31')")
	ok(t, err)
	for what, values := range map[string]string{
		"token":       "0, -5, '', -1, true, true, false, false, 1, 1, now(), '9999-12-31', '', ''",
		"permits":     "-5, -5, 'id', -1, true, true, false, true, -7, 1, now(), '9999-12-31', '', ''",
		"ttl":         "-5, -5, 'id', -1, true, false, false, false, 1, 9223372036854775807, '9999-12-31', NULL, '', ''",
		"provisional": "-5, -5, 'id', -1, true, false, true, false, 0, 3600000000, '0001-01-01', NULL, '\\xff', '\\x00'",
		"spaces":      "-5, -5, E'a b\\ng c 5 1', -1, true, false, false, false, 1, 3600000000, now(), NULL, '', ''",
	} {
		_, err := p.Exec(t.Context(), "INSERT INTO "+prefix+"_tickets VALUES ($1, "+values+")", []byte(what))
		ok(t, err)
		corrupttest.NotGranted(t, l, what, what)
		_, err = p.Exec(context.Background(), "DELETE FROM "+prefix+"_tickets")
		ok(t, err)
		k, err := l.Acquire(t.Context(), what)
		ok(t, err)
		ok(t, k.Release(t.Context()))
	}
}

// A time that was written by hand and that no number of microseconds stands for is what Inspect complains about. It does not
// look like a database that does not answer.
func TestInfiniteTime(t *testing.T) {
	t.Parallel()
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	r := driver.Request{Name: "a", ID: "one", TTL: time.Minute}
	_, err := d.Acquire(t.Context(), r)
	ok(t, err)
	for _, column := range []string{"since", "expires_at"} {
		_, err = p.Exec(t.Context(), "UPDATE "+prefix+"_tickets SET "+column+" = 'infinity'")
		ok(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err = d.Inspect(ctx, "a")
		cancel()
		if err == nil || errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "infinite") {
			t.Errorf("%s: %v", column, err)
		}
		_, err = p.Exec(t.Context(), "UPDATE "+prefix+"_tickets SET "+column+" = now() + interval '1 minute'")
		ok(t, err)
	}
	_, err = d.Inspect(t.Context(), "a")
	ok(t, err)
}
