package sqlite_test

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/sqlite"
	"github.com/lockerproject/locker/internal/testbed"
)

// slack is what a busy machine may add to a time.
const slack = 2 * time.Second

func child(t *testing.T, name, path string, env ...string) *testbed.Process {
	t.Helper()
	return testbed.Child(t, name, append(env, "DB="+path)...)
}

// holder is a process that holds a name.
func holder(t *testing.T, path, name, ttl string) (p *testbed.Process, token uint64) {
	t.Helper()
	p = child(t, "client", path)
	p.WaitLine("ready")
	p.Send("acquire " + name + " " + ttl)
	token, err := strconv.ParseUint(p.WaitLine("granted "), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return p, token
}

// The lock of a process that was killed passes on when its lease ends, and not before.
func TestHolderIsKilled(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second // the rest of which is not over at the check, on a busy machine
	path := newPath(t)
	l := clientAt(t, path)
	p, token := holder(t, path, "a", ttl.String())
	killed := time.Now() // its last renewal was before
	p.Kill()
	tickets, err := l.Inspect(ctx, "a")
	if err != nil || len(tickets.Tickets) != 1 {
		t.Fatalf("the lock of a killed process: %v, %v", tickets, err)
	}
	var took time.Duration
	var k *locker.Lock
	measured := testbed.Elapsed(func() { k = acquire(t, l, "a"); took = time.Since(killed) })
	if took < ttl/3 || measured > ttl+500*time.Millisecond+slack {
		t.Errorf("granted %v after the holder was killed, which had a lease of %v", took, ttl)
	}
	if k.Token() <= token {
		t.Errorf("token %d after %d", k.Token(), token)
	}
}

// A process that is stopped past its lease has lost the lock, and is notified as soon as
// it goes on.
func TestHolderIsPaused(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	l := clientAt(t, path)
	p, token := holder(t, path, "a", "1s")
	pauseBetweenWrites(t, p, l)
	k := acquire(t, l, "a")
	if k.Token() <= token {
		t.Errorf("token %d after %d", k.Token(), token)
	}
	p.Resume()
	if got := p.WaitLine("ended "); got != locker.ErrLost.Error() {
		t.Errorf("the lock of a process that was stopped ended with %q", got)
	}
	p.Send("release")
	if got := p.WaitLine("released "); !strings.Contains(got, locker.ErrLost.Error()) {
		t.Errorf("its release: %q", got)
	}
	if err := k.Release(ctx); err != nil {
		t.Errorf("the release of who holds now: %v", err)
	}
}

// A waiter that was killed, and one that is stopped, delay the waiters after them by the
// time that they may be silent. The stopped one queues again when it goes on.
func TestWaitersAreKilledAndPaused(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	d := openAt(t, path)
	l := locker.New(d)
	defer l.Close()
	k := acquire(t, l, "a")
	var ps []*testbed.Process
	for i := range 2 {
		p := child(t, "client", path)
		p.WaitLine("ready")
		p.Send("acquire a 30s")
		awaitQueue(t, l, "a", i+2)
		ps = append(ps, p)
	}
	ps[0].Kill()
	pauseBetweenWrites(t, ps[1], l)
	if err := k.Release(ctx); err != nil {
		t.Fatal(err)
	}
	took := testbed.Elapsed(func() { k = acquire(t, l, "a") })
	if bound := d.Bounds(time.Minute).Liveness; took > bound+slack {
		t.Errorf("two dead waiters delayed the queue by %v, want %v", took, bound)
	}
	ps[1].Resume()
	awaitQueue(t, l, "a", 2)
	if err := k.Release(ctx); err != nil {
		t.Fatal(err)
	}
	if token, _ := strconv.ParseUint(ps[1].WaitLine("granted "), 10, 64); token <= k.Token() {
		t.Errorf("token %d after %d", token, k.Token())
	}
}

func awaitQueue(t *testing.T, l *locker.Client, name string, n int) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		q, err := l.Inspect(ctx, name)
		if err == nil && len(q.Tickets) == n {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("the queue is %v (%v), want %d tickets", q, err, n)
		}
	}
}

func TestProcessesCount(t *testing.T) {
	t.Parallel()
	const processes, goroutines, rounds = 3, 20, 5
	path := newPath(t)
	file := path + ".count"
	if err := os.WriteFile(file, []byte("0"), 0o600); err != nil {
		t.Fatal(err)
	}
	var ps []*testbed.Process
	for range processes {
		p := child(t, "count", path, "FILE="+file, "GOROUTINES="+strconv.Itoa(goroutines), "ROUNDS="+strconv.Itoa(rounds))
		p.WaitLine("ready")
		ps = append(ps, p)
	}
	for _, p := range ps {
		p.Send("go")
	}
	for _, p := range ps {
		for line := range p.Lines() {
			if line != "done <nil>" {
				t.Error(line)
			}
		}
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != strconv.Itoa(processes*goroutines*rounds) {
		t.Errorf("counted to %s, want %d (%v)", b, processes*goroutines*rounds, err)
	}
}

// A process that is stopped in the middle of a write blocks all others that write. They
// fail in time, grant nothing, and go on when it is gone. Reads are not blocked.
func TestStoppedInTransaction(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	d := openAt(t, path, sqlite.WithBusyTimeout(200*time.Millisecond))
	r := driver.Request{Name: "a", ID: "1", TTL: time.Minute, Wait: true}
	if _, err := d.Acquire(ctx, r); err != nil {
		t.Fatal(err)
	}
	p := child(t, "transaction", path)
	p.WaitLine("began <nil>")
	p.Pause()
	other := driver.Request{Name: "b", ID: "2", TTL: time.Minute}
	_, err := d.Acquire(ctx, other)
	if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "another process has had the file locked for") {
		t.Errorf("Acquire while another process is stopped in a write: %v", err)
	}
	if _, err := openAt(t, path).Inspect(ctx, "a"); err != nil {
		t.Errorf("a process that is started then cannot read: %v", err)
	}
	if tickets, err := d.Inspect(ctx, "a"); err != nil || len(tickets) != 1 {
		t.Errorf("Inspect while another process is stopped in a write: %v, %v", tickets, err)
	}
	p.Kill()
	if _, err := d.Acquire(ctx, other); err != nil {
		t.Errorf("Acquire when it is gone: %v", err)
	}
}

// pauseBetweenWrites stops a process that renews or has heartbeats while it does not write:
// one that is stopped in the middle of a write blocks all others (TestStoppedInTransaction).
func pauseBetweenWrites(t *testing.T, p *testbed.Process, l *locker.Client) {
	t.Helper()
	for range 10 {
		p.Pause()
		short, cancel := context.WithTimeout(ctx, 500*time.Millisecond)
		k, err := l.Acquire(short, "free")
		cancel()
		if err == nil {
			err = k.Release(ctx)
		}
		if err == nil {
			return
		}
		t.Logf("stopped in the middle of a write: %v", err)
		p.Resume()
	}
	t.Fatal("the process was in the middle of a write each time that it was stopped")
}

// Processes that are killed while they write leave an intact database, in which tokens go
// on growing.
func TestKilledWhileWriting(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	last, rounds := uint64(0), 10
	if testing.Short() {
		rounds = 4
	}
	for i := range rounds {
		ps := []*testbed.Process{child(t, "cycle", path), child(t, "cycle", path)}
		for range 3 + 5*i%17 { // and then at any moment of the next cycle
			ps[i%2].WaitLine("token ")
		}
		for _, p := range ps {
			p.Kill()
			for line := range p.Lines() {
				token, err := strconv.ParseUint(strings.TrimPrefix(line, "token "), 10, 64)
				if err != nil {
					t.Fatal(line)
				}
				last = max(last, token)
			}
		}
		integrity(t, path)
	}
	if k := acquire(t, clientAt(t, path), "cycle-0"); k.Token() <= last {
		t.Errorf("token %d after %d", k.Token(), last)
	}
}

func integrity(t *testing.T, path string) {
	t.Helper()
	db := openDB(path)
	defer db.Close()
	var result string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check").Scan(&result); err != nil || result != "ok" {
		t.Fatalf("integrity_check: %s, %v", result, err)
	}
}

// Processes that start at once, on a file that does not exist, all find the tables.
func TestProcessesStartAtOnce(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	var ps []*testbed.Process
	for range 6 {
		ps = append(ps, child(t, "open", path))
	}
	for _, p := range ps {
		if got := p.WaitLine("opened "); got != "<nil>" {
			t.Error(got)
		}
	}
}

// takenByChild reports whether another process can take the lock b.
func takenByChild(t *testing.T, path string) bool {
	t.Helper()
	p := child(t, "read", path)
	for line := range p.Lines() {
		if strings.HasPrefix(line, "acquire <nil>") {
			return true
		}
	}
	return false
}
