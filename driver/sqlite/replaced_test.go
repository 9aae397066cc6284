package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/sqlite"
)

// The path leads to another file, because a folder in it is a link that was changed: programs that open the path now do
// not see the locks in the old file.
func TestFolderLeadsElsewhere(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	link := filepath.Join(dir, "current")
	path := filepath.Join(link, "locks.db")
	at := func(release string) {
		folder := filepath.Join(dir, release)
		err := errors.Join(os.Mkdir(folder, 0o700), os.Symlink(folder, link+".new"), os.Rename(link+".new", link))
		if err != nil {
			t.Fatal(err)
		}
	}
	at("1")
	before := openAt(t, path)
	if err := try(t, before, "a"); err != nil {
		t.Fatal(err)
	}
	at("2")
	after := openAt(t, path)
	if err := try(t, before, "b"); err == nil || !strings.Contains(err.Error(), "removed or replaced") {
		t.Errorf("Acquire in a file to which the path does not lead any more: %v", err)
	}
	if err := try(t, after, "b"); err != nil {
		t.Errorf("in the new file: %v", err)
	}
}

// SQLite's own files were removed, by a program that removes old ones, say: processes that open the path now make others,
// and do not see the locks that are made with the old ones.
func TestLogIsRemoved(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"-wal", "-shm"} {
		path := newPath(t)
		before := openAt(t, path)
		if err := try(t, before, "a"); err != nil {
			t.Fatal(err)
		}
		execute(t, path, "PRAGMA wal_checkpoint(FULL)")
		if err := os.Remove(path + end); err != nil {
			t.Fatal(err)
		}
		after := takenByChild(t, path)
		err := try(t, before, "b")
		if err == nil && after {
			t.Errorf("two processes have the lock b, after %s was removed", end)
		}
		if err == nil || !strings.Contains(err.Error(), "removed or replaced") {
			t.Errorf("Acquire after %s was removed: %v", end, err)
		}
	}
}

// A file that was given another kind of log, while nobody used it, gets its own again.
func TestOtherLog(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	if err := openAt(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	awaitClosed(t, path)
	execute(t, path, "PRAGMA journal_mode = DELETE")
	if err := try(t, openAt(t, path), "a"); err != nil {
		t.Error(err)
	}
}

// Ping and Acquire use a path at once where there is nothing yet.
func TestPingWhileMade(t *testing.T) {
	t.Parallel()
	for range 20 {
		d, err := sqlite.New(newPath(t))
		if err != nil {
			t.Fatal(err)
		}
		var calls sync.WaitGroup
		for range 4 {
			calls.Go(func() {
				if err := d.Ping(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		calls.Go(func() {
			if _, err := d.Acquire(ctx, driver.Request{Name: "a", ID: "a", TTL: time.Minute}); err != nil {
				t.Error(err)
			}
		})
		calls.Wait()
		_ = d.Close()
	}
}
