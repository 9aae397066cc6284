package sqlite_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/sqlite"
)

// TestFolderAboveALink names the file by the folder above one to which a link leads, as programs do that run in it: that is the folder
// above which the system goes to, whatever way the program has come.
func TestFolderAboveALink(t *testing.T) {
	dir := t.TempDir()
	link := filepath.Join(dir, "current")
	folder := filepath.Join(dir, "releases", "1")
	if err := errors.Join(os.MkdirAll(folder, 0o700), os.Symlink(folder, link)); err != nil {
		t.Fatal(err)
	}
	a := openAt(t, filepath.Join(dir, "releases", "locks.db"))
	if err := try(t, a, "a"); err != nil {
		t.Fatal(err)
	}
	t.Chdir(link)
	for _, path := range []string{"../locks.db", link + "/../locks.db"} {
		b := openAt(t, path, sqlite.WithoutCreate())
		if _, err := b.Acquire(ctx, driver.Request{Name: "a", ID: "2", TTL: time.Minute}); !errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("a lock that is held in the file that %s is: %v", path, err)
		}
	}
}
