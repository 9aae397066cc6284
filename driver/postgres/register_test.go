package postgres_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// The answer to a request is that its process is not registered, while another request registers it. The driver
// must not conclude that the process has expired: tickets of other requests are queued, and would be granted to
// nobody.
func TestFirstWaitersAtOnce(t *testing.T) {
	t.Parallel()
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	holder := driver.Request{Name: "a", ID: "holder", TTL: time.Minute}
	g, err := d.Acquire(t.Context(), holder)
	ok(t, err)
	tx := begin(t, p)
	_, err = tx.Exec(t.Context(), "LOCK TABLE "+prefix+"_processes IN EXCLUSIVE MODE") // reading is allowed
	ok(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	joined, ended := make(chan string, 3), make(chan error, 3)
	join := func(id string) {
		r := driver.Request{Name: "a", ID: id, TTL: time.Minute, Shared: true, Wait: true, Joined: func() { joined <- id }}
		go func() { _, err := d.Acquire(ctx, r); ended <- err }()
	}
	join("one")
	waitFor(t, "the first registers the process", func() (waits bool) {
		ok(t, p.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND query LIKE '%' || $1 || '_heartbeat' || $2 || '%')`, prefix, postgres.Version).Scan(&waits))
		return waits
	})
	join("two")
	join("three")
	time.Sleep(300 * time.Millisecond) // the answer is that it is not registered
	ok(t, tx.Rollback(t.Context()))
	for range 3 {
		select {
		case <-joined:
		case err := <-ended:
			t.Fatalf("a waiter lost its ticket: %v", err)
		case <-time.After(10 * time.Second):
			t.Fatal("not queued in 10 s")
		}
	}
	ok(t, d.Release(t.Context(), holder.Hold(g.Token)))
	for range 3 {
		ok(t, <-ended)
	}
	var processes int
	ok(t, p.QueryRow(t.Context(), "SELECT count(*) FROM "+prefix+"_processes WHERE id <> 0").Scan(&processes))
	if processes != 1 {
		t.Errorf("it is %d processes to the database, want 1", processes)
	}
}

// A process that has not waited for a while leaves, and may wait again.
func TestWaitsAgainAfterAWhile(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some ten seconds")
	}
	t.Parallel()
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	holder := driver.Request{Name: "a", ID: "holder", TTL: time.Minute}
	g, err := d.Acquire(t.Context(), holder)
	ok(t, err)
	wait := func(ctx context.Context, id string) <-chan error {
		joined, ended := make(chan struct{}), make(chan error, 1)
		r := driver.Request{Name: "a", ID: id, TTL: time.Minute, Wait: true, Joined: func() { close(joined) }}
		go func() { _, err := d.Acquire(ctx, r); ended <- err }()
		<-joined
		return ended
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := wait(ctx, "one")
	cancel()
	is(t, <-ended, context.Canceled)
	_ = d.Release(t.Context(), driver.Hold{Name: "a", ID: "one"}) // the background task may have done so
	waitFor(t, "the process leaves", func() bool {
		var processes int
		ok(t, p.QueryRow(t.Context(), "SELECT count(*) FROM "+prefix+"_processes WHERE id <> 0").Scan(&processes))
		return processes == 0
	})
	ended = wait(t.Context(), "two")
	waitFor(t, "it sends heartbeats again", func() (sent bool) { // the first number is that of the registration
		ok(t, p.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM "+prefix+"_processes WHERE heartbeat > 2)").Scan(&sent))
		return sent
	})
	ok(t, d.Release(t.Context(), holder.Hold(g.Token)))
	ok(t, <-ended)
}
