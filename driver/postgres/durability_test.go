//go:build unix

package postgres_test

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// stopWALWriter stops the process that writes commits to the disk for those who do not wait for it. It goes on, or ends,
// with the server.
func stopWALWriter(t *testing.T, p *pgxpool.Pool) {
	t.Helper()
	var pid int
	ok(t, p.QueryRow(t.Context(), "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'").Scan(&pid))
	name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
	if err != nil || !strings.Contains(string(name), "walwriter") {
		testbed.Lacks(t, "the server's processes are not those of this machine (Linux, no container)")
	}
	ok(t, syscall.Kill(pid, syscall.SIGSTOP))
}

// A crash of the database loses what was granted with asynchronous durability just before it: then two hold the lock, until
// the first learns of that by its next renewal. The second has a higher token. Without that option nothing is lost.
func TestCrashLosesAsyncGrants(t *testing.T) {
	t.Parallel()
	for durability, lost := range map[string]bool{"": false, "&durability=async": true} {
		t.Run("durability"+durability, func(t *testing.T) {
			t.Parallel()
			srv := testbed.Postgres(t, testbed.Durable(), testbed.Args("-c", "autovacuum=off"))
			client := func() *locker.Client {
				l, err := locker.Open(t.Context(), srv.URL()+durability)
				ok(t, err)
				t.Cleanup(func() { _ = l.Close() })
				return l
			}
			holder := client()
			k, err := holder.Acquire(t.Context(), "b") // makes the tables
			ok(t, err)
			ok(t, k.Release(t.Context()))
			p := newPool(t, srv.URL(), nil)
			_, err = p.Exec(t.Context(), "CREATE TABLE before ()") // what was committed by now is on the disk
			ok(t, err)
			stopWALWriter(t, p)
			k, err = holder.Acquire(t.Context(), "a", locker.WithTTL(time.Minute))
			ok(t, err)
			srv.Kill()
			srv.Start()
			second, err := client().TryAcquire(t.Context(), "a")
			if !lost {
				is(t, err, locker.ErrNotAcquired)
				ok(t, extend(t, k))
				return
			}
			ok(t, err)
			ok(t, k.Err()) // two holders
			if second.Token() <= k.Token() {
				t.Errorf("token %d after %d", second.Token(), k.Token())
			}
			is(t, extend(t, k), locker.ErrLost)
			ok(t, second.Release(t.Context()))
		})
	}
}

// Asynchronous durability is of the driver's own transactions. It changes neither the connections of the pool, which are
// the user's, nor a transaction that is guarded.
func TestAsyncDurabilityIsOfOwnTransactions(t *testing.T) {
	t.Parallel()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(unique()), postgres.WithAsyncDurability())
	l := newLocker(t, d)
	k, err := l.Acquire(t.Context(), "a")
	ok(t, err)
	ok(t, k.Extend(t.Context(), time.Minute))
	w := async(t, l, "a")
	queued(t, l, "a", 2)
	tx, err := p.Begin(t.Context())
	ok(t, err)
	ok(t, d.Guard(t.Context(), tx, k))
	var setting string
	ok(t, tx.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&setting))
	ok(t, tx.Commit(t.Context()))
	if setting != "on" {
		t.Errorf("synchronous_commit is %s in a transaction that is guarded", setting)
	}
	ok(t, k.Release(t.Context()))
	ok(t, got(t, w).Release(t.Context()))
	for _, c := range p.AcquireAllIdle(t.Context()) {
		ok(t, c.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&setting))
		c.Release()
		if setting != "on" {
			t.Errorf("synchronous_commit is %s on a connection of the pool", setting)
		}
	}
}
