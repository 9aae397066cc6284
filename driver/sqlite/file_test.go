package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/sqlite"
	"github.com/lockerproject/locker/internal/testbed"
)

// openDB opens a database for the test itself.
func openDB(path string) *sql.DB {
	db, err := sql.Open("sqlite", "file:"+path+"?mode=rw&_pragma=busy_timeout(60000)")
	if err != nil {
		panic(err)
	}
	return db
}

func execute(t *testing.T, path string, queries ...string) {
	t.Helper()
	db := openDB(path)
	defer db.Close()
	for _, q := range queries {
		if _, err := db.ExecContext(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
}

// refused fails unless the file cannot be opened, for the reason given.
func refused(t *testing.T, path, why string, is error, opts ...sqlite.Option) {
	t.Helper()
	d, err := sqlite.New(path, opts...)
	if err == nil {
		_ = d.Close()
		t.Fatalf("%s was opened", path)
	}
	if !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), path) {
		t.Errorf("error %q, want one with %q and the path", err, why)
	}
	if is != nil && !errors.Is(err, is) {
		t.Errorf("error %q is not %q", err, is)
	}
}

func try(t *testing.T, d *sqlite.Driver, name string) error {
	t.Helper()
	_, err := d.Acquire(within(t), driver.Request{Name: name, ID: name, TTL: time.Minute})
	return err
}

func TestFileIsMade(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state", "locker", "locks.db")
	refused(t, path, "the file does not exist", fs.ErrNotExist, sqlite.WithoutCreate())
	if _, err := os.Stat(filepath.Dir(path)); err == nil {
		t.Error("a folder was made without create")
	}
	d, err := sqlite.New(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	looks(t, d)
	if _, err := os.Stat(filepath.Dir(filepath.Dir(path))); err == nil {
		t.Error("a folder was made by looking")
	}
	if err := try(t, d, "a"); err != nil {
		t.Fatal(err)
	}
	awaitNotices(t, d)
	for file, want := range map[string]fs.FileMode{
		filepath.Dir(path): 0o700 | fs.ModeDir, path: 0o600, path + "-wal": 0o600, path + "-shm": 0o600,
		path + "-notify": 0o700 | fs.ModeDir,
	} {
		if st, err := os.Stat(file); err != nil || st.Mode() != want {
			t.Errorf("%s has mode %v, want %v (%v)", file, st.Mode(), want, err)
		}
	}
	openAt(t, path, sqlite.WithoutCreate()) // now it is there
}

// looks uses an empty store in every way that must make nothing.
func looks(t *testing.T, d *sqlite.Driver) {
	t.Helper()
	h := driver.Hold{Name: "a", ID: "a", Token: 1}
	if tickets, err := d.Inspect(ctx, "a"); err != nil || len(tickets) != 0 {
		t.Errorf("Inspect: %v, %v", tickets, err)
	}
	if names, err := d.List(ctx); err != nil || len(names) != 0 {
		t.Errorf("List: %v, %v", names, err)
	}
	if err := d.Ping(ctx); err != nil {
		t.Errorf("Ping: %v", err)
	}
	for verb, err := range map[string]error{
		"Release": d.Release(ctx, h), "Renew": d.Renew(ctx, h, time.Minute), "Break": d.Break(ctx, "a", 1), "Shorten": d.Shorten(ctx, h, 0),
	} {
		if !errors.Is(err, driver.ErrLost) {
			t.Errorf("%s: %v", verb, err)
		}
	}
}

// A driver that has found no file uses the one that another makes.
func TestFileIsMadeByAnother(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	d, err := sqlite.New(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	looks(t, d)
	if err := try(t, openAt(t, path), "a"); err != nil {
		t.Fatal(err)
	}
	if tickets, err := d.Inspect(ctx, "a"); err != nil || len(tickets) != 1 {
		t.Errorf("Inspect: %v, %v", tickets, err)
	}
	if _, err := d.Acquire(ctx, driver.Request{Name: "a", ID: "2", TTL: time.Minute}); !errors.Is(err, driver.ErrNotAcquired) {
		t.Errorf("Acquire what another has: %v", err)
	}
}

// A path where no file can be made is refused, also by Ping if that becomes so later.
func TestFileCannotBeMade(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, path := filepath.Join(dir, "file"), filepath.Join(dir, "later", "locks.db")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, filepath.Join(file, "locks.db"), "", nil)
	refused(t, filepath.Join(file, "more", "locks.db"), "", nil)
	d, err := sqlite.New(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := os.WriteFile(filepath.Dir(path), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Ping(ctx); err == nil {
		t.Error("Ping where no file can be made")
	}
}

func TestFileIsEmpty(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, path, "empty", nil, sqlite.WithoutCreate())
	d, err := sqlite.New(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	looks(t, d)
	if st, err := os.Stat(path); err != nil || st.Size() != 0 {
		t.Errorf("the file was changed by looking: %v, %v", st, err)
	}
	if err := try(t, openAt(t, path), "a"); err != nil {
		t.Error(err)
	}
}

func TestFileIsNoDatabase(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	text := strings.Repeat("My diary. ", 1000)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, path, "not an SQLite database", nil)
	if d, err := sqlite.New(path); errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("%v: it will not be one later", err)
	} else if err == nil {
		_ = d.Close()
	}
	if b, err := os.ReadFile(path); err != nil || string(b) != text {
		t.Error("it was changed")
	}
	refused(t, filepath.Dir(path), "is not a file", nil)
}

func TestFileIsAnotherPrograms(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	execute(t, path, "CREATE TABLE bookmarks (url TEXT)")
	before, _ := os.ReadFile(path)
	refused(t, path, "another program", nil)
	if after, err := os.ReadFile(path); err != nil || string(after) != string(before) {
		t.Error("it was changed")
	}
}

func TestFileIsOfAnotherVersion(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	d := openAt(t, path)
	execute(t, path, "UPDATE store SET version = 3")
	refused(t, path, "version of locker: 3, and this program knows version 2", nil)
	// A program that is running when another one changes the version stops, too.
	if err := try(t, d, "a"); err == nil || !strings.Contains(err.Error(), "version of locker: 3") {
		t.Errorf("Acquire after a change of the version: %v", err)
	}
}

func TestFileIsDamaged(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	d := openAt(t, path)
	if err := try(t, d, "a"); err != nil {
		t.Fatal(err)
	}
	_ = d.Close()
	awaitClosed(t, path)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 4096; i < len(b); i++ { // all but the page with the header and the schema
		b[i] = 0xa5
	}
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	refused(t, path, "the file is damaged", driver.ErrUnavailable)
}

// awaitClosed waits until the last connection is closed: then all is in the one file.
func awaitClosed(t *testing.T, path string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		_, err := os.Stat(path + "-wal")
		if errors.Is(err, fs.ErrNotExist) {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the database is open after Close")
		}
	}
}

// A program that opens the path of a removed file gets another file: programs that
// have the old one must not go on as if it were shared.
func TestFileIsReplaced(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	d := openAt(t, path)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := try(t, d, "a"); err == nil || !strings.Contains(err.Error(), "removed or replaced") {
		t.Errorf("Acquire in a file that was removed: %v", err)
	}
	if err := try(t, openAt(t, path), "a"); err != nil {
		t.Errorf("in the new file: %v", err)
	}
	if err := try(t, d, "a"); err == nil || !strings.Contains(err.Error(), "removed or replaced") {
		t.Errorf("Acquire in a file that was replaced: %v", err)
	}
}

// After a boot all leases are over, and tokens are beyond all that the loss of power
// may have taken. A program that goes on under another boot ID gets an error.
func TestReboot(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	before := openAt(t, path)
	r := driver.Request{Name: "a", ID: "1", TTL: time.Hour}
	g, err := before.Acquire(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	execute(t, path, "UPDATE store SET boot = 'the boot before'")
	if err := try(t, before, "b"); err == nil || !strings.Contains(err.Error(), "another machine") {
		t.Errorf("Acquire under another boot ID: %v", err)
	}
	after, err := openAt(t, path).Acquire(ctx, driver.Request{Name: "a", ID: "2", TTL: time.Hour})
	if err != nil {
		t.Fatalf("the lease of the boot before goes on: %v", err)
	}
	if after.Token < g.Token+1<<32 {
		t.Errorf("token %d after a boot, and %d before", after.Token, g.Token)
	}
}

func TestSymbolicLink(t *testing.T) {
	t.Parallel()
	path, link := newPath(t), newPath(t)
	a := openAt(t, path)
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	b := openAt(t, link)
	if err := try(t, a, "a"); err != nil {
		t.Fatal(err)
	}
	if err := b.Ping(ctx); err != nil {
		t.Error(err)
	}
	if _, err := b.Acquire(ctx, driver.Request{Name: "a", ID: "2", TTL: time.Minute}); !errors.Is(err, driver.ErrNotAcquired) {
		t.Errorf("a lock that is held by way of the other name: %v", err)
	}
}

// If the folder cannot be made, the error is about that alone.
func TestFolderCannotBeMade(t *testing.T) {
	t.Parallel()
	if _, err := os.Stat("/proc/self"); err != nil {
		t.Skip("there is no folder in which root cannot make another one")
	}
	d, err := sqlite.New("/proc/none/locks.db")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := try(t, d, "a"); err == nil || !strings.Contains(err.Error(), "making the folder") || strings.Contains(err.Error(), "create") {
		t.Errorf("got %v", err)
	}
}

// The schema itself keeps two exclusive holders of one name apart.
func TestSchemaExcludes(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	if err := try(t, openAt(t, path), "a"); err != nil {
		t.Fatal(err)
	}
	db := openDB(path)
	defer db.Close()
	_, err := db.ExecContext(ctx, `INSERT INTO tickets (name, slot, id, process, owner, note, shared, permits, ttl, state, since, expires)
		SELECT name, slot, 'other', process, owner, note, shared, permits, ttl, state, since, expires FROM tickets`)
	if err == nil || !strings.Contains(err.Error(), "UNIQUE constraint failed: tickets.name") {
		t.Errorf("a second exclusive holder: %v", err)
	}
}

// A database that cannot grow is ErrUnavailable, and nothing is granted in it. See
// TestDiskIsFull for a real disk, which needs the right to mount one.
func TestDatabaseIsFull(t *testing.T) {
	t.Parallel()
	d := openAt(t, newPath(t))
	if err := d.LimitPages(1); err != nil {
		t.Fatal(err)
	}
	var err error
	granted := 0
	for ; err == nil && granted < 1000; granted++ { // there may be space left in the last pages
		err = try(t, d, fmt.Sprint("full-", granted))
	}
	if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "the disk is full") {
		t.Fatalf("Acquire in a database that is full: %v", err)
	}
	name := fmt.Sprint("full-", granted-1) // the one that failed
	if tickets, err := d.Inspect(ctx, name); err != nil || len(tickets) != 0 {
		t.Errorf("the queue of a request that failed: %v, %v", tickets, err)
	}
	if err := d.LimitPages(1 << 20); err != nil {
		t.Fatal(err)
	}
	if err := try(t, d, name); err != nil {
		t.Errorf("Acquire when there is space again: %v", err)
	}
}

// Without pipes a process polls.
func TestWithoutPipes(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	if err := os.WriteFile(path+"-notify", nil, 0o600); err != nil { // where the folder would be
		t.Fatal(err)
	}
	a, b := openAt(t, path), openAt(t, path)
	if err := try(t, a, "a"); err != nil {
		t.Fatal(err)
	}
	joined, granted := make(chan struct{}), make(chan error)
	go func() {
		_, err := b.Acquire(within(t), driver.Request{
			Name: "a", ID: "2", TTL: time.Minute, Wait: true, Joined: func() { close(joined) },
		})
		granted <- err
	}()
	<-joined
	if err := a.Release(ctx, driver.Hold{Name: "a", ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := <-granted; err != nil {
		t.Error(err)
	}
}

// An Acquire whose context has ended requests nothing.
func TestContextHasEnded(t *testing.T) {
	t.Parallel()
	c, cancel := context.WithCancel(ctx)
	cancel()
	_, err := openAt(t, newPath(t)).Acquire(c, driver.Request{Name: "a", ID: "1", TTL: time.Minute})
	if !errors.Is(err, driver.ErrNoTicket) || !errors.Is(err, context.Canceled) {
		t.Errorf("Acquire with a context that has ended: %v", err)
	}
}

// A lease that is shortened ends then, for those who wait too, and is not made longer.
func TestShortenedLease(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	d, other := openAt(t, path), openAt(t, path)
	r := driver.Request{Name: "a", ID: "short", TTL: time.Minute, MinHold: time.Second}
	g, err := d.Acquire(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	joined, granted := make(chan struct{}), make(chan error, 1)
	next := driver.Request{Name: "a", ID: "next", TTL: time.Minute, Wait: true, Joined: func() { close(joined) }}
	go func() { _, err := other.Acquire(within(t), next); granted <- err }()
	<-joined
	if err := d.Shorten(ctx, next.Hold(0), time.Second); !errors.Is(err, driver.ErrLost) {
		t.Errorf("what waits was shortened: %v", err)
	}
	const left = time.Second
	begun := time.Now()
	for _, left := range []time.Duration{left, time.Minute} {
		if err := d.Shorten(ctx, r.Hold(g.Token), left); err != nil {
			t.Fatal(err)
		}
	}
	took := testbed.Elapsed(func() {
		if err := <-granted; err != nil {
			t.Error(err)
		}
	})
	if kept := time.Since(begun); kept < left {
		t.Errorf("granted after %v, want %v", kept, left)
	}
	if bound := d.Bounds(left).Crash; took > bound {
		t.Errorf("granted after %v, want %v at most", took, bound)
	}
	if err := d.Shorten(ctx, r.Hold(g.Token), time.Second); !errors.Is(err, driver.ErrLost) {
		t.Errorf("what is gone was shortened: %v", err)
	}
}
