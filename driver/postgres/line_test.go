package postgres_test

import (
	"strings"
	"testing"

	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// A release does without the lock of the name while nobody stands behind. One
// that meets somebody who is just joining waits, and then hands over.
func TestReleaseMeetsAJoin(t *testing.T) {
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	l := newLocker(t, d)
	k, err := l.Acquire(t.Context(), "a")
	ok(t, err)

	tx, err := p.Begin(t.Context())
	ok(t, err)
	defer func() { _ = tx.Rollback(t.Context()) }()
	_, err = tx.Exec(t.Context(), "SELECT "+prefix+"_beat1(7, 60000000, true)")
	ok(t, err)
	var answer string
	ok(t, tx.QueryRow(t.Context(), "SELECT "+prefix+"_acquire1('a', 'joining', 7, false, 1, 60000000, true, '', '')").Scan(&answer))
	if !strings.HasPrefix(answer, "w ") {
		t.Fatalf("the answer to who joins is %q", answer)
	}

	released := make(chan error, 1)
	go func() { released <- k.Release(t.Context()) }()
	waitFor(t, "the release waits for who joins", func() (waits bool) {
		ok(t, p.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '_release1%')`, prefix).Scan(&waits))
		return waits
	})
	ok(t, tx.Commit(t.Context()))
	ok(t, <-released)
	var held bool
	ok(t, p.QueryRow(t.Context(), "SELECT held FROM "+prefix+"_tickets WHERE id = 'joining'").Scan(&held))
	if !held {
		t.Fatal("the release did not hand over to who joined")
	}
}
