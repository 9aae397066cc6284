package sqlite_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/sqlite"
)

// mount mounts a file system in memory, of that size, for the test.
func mount(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("locks", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("needs the right to mount a file system (run it as root): %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// On a full disk nothing is granted or released, errors say so, and nothing is damaged.
func TestDiskIsFull(t *testing.T) {
	t.Parallel()
	dir := mount(t, "400k")
	path := filepath.Join(dir, "locks.db")
	d := openAt(t, path)
	r := driver.Request{Name: "a", ID: "a", TTL: time.Minute}
	if _, err := d.Acquire(ctx, r); err != nil {
		t.Fatal(err)
	}
	fill := filepath.Join(dir, "fill")
	if err := os.WriteFile(fill, make([]byte, 1<<20), 0o600); err == nil {
		t.Fatal("the disk is not full")
	}
	var err error
	for i := 0; err == nil && i < 100; i++ { // there may be space in the last page, and Ping writes the least
		err = d.Ping(ctx)
	}
	full(t, "Ping", err)
	full(t, "Acquire", try(t, d, "b"))
	full(t, "Release", d.Release(ctx, r.Hold(0)))
	if tickets, err := d.Inspect(ctx, "a"); err != nil || len(tickets) != 1 {
		t.Errorf("Inspect: %v, %v", tickets, err)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	if err := d.Release(ctx, r.Hold(0)); err != nil {
		t.Errorf("Release when there is space: %v", err)
	}
	if err := try(t, d, "a"); err != nil {
		t.Errorf("Acquire when there is space: %v", err)
	}
	integrity(t, path)
}

func full(t *testing.T, what string, err error) {
	t.Helper()
	if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("%s on a full disk: %v", what, err)
	}
}

// The first Acquire fails if there is no space for the tables, and the next works when there is.
func TestDiskIsFullAtFirst(t *testing.T) {
	t.Parallel()
	dir := mount(t, "64k")
	path := filepath.Join(dir, "locks.db")
	fill := filepath.Join(dir, "fill")
	_ = os.WriteFile(fill, make([]byte, 52<<10), 0o600)
	d, err := sqlite.New(path)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := try(t, d, "a"); !errors.Is(err, driver.ErrUnavailable) || !errors.Is(err, driver.ErrNoTicket) {
		t.Errorf("Acquire without space for the tables: %v", err)
	}
	if err := os.Remove(fill); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "size=1m"); err != nil {
		t.Fatal(err)
	}
	if err := try(t, d, "a"); err != nil {
		t.Error(err)
	}
}

// A user who may not write to the file can inspect locks, and take none.
func TestFileIsReadOnly(t *testing.T) {
	t.Parallel()
	dir := mount(t, "1m")
	path := filepath.Join(dir, "locks.db")
	d := openAt(t, path) // keeps the write-ahead log
	r := driver.Request{Name: "a", ID: "a", TTL: time.Minute}
	if _, err := d.Acquire(ctx, r); err != nil {
		t.Fatal(err)
	}
	for file, mode := range map[string]os.FileMode{
		filepath.Dir(dir): 0o755, dir: 0o755, path: 0o644, path + "-wal": 0o644, path + "-shm": 0o644,
	} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	out := asNobody(t, path)
	for _, want := range []string{"inspect 1 <nil>", "may not write to the file"} {
		if !strings.Contains(out, want) {
			t.Errorf("as another user: %s, want %q", out, want)
		}
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if out := asNobody(t, path); !strings.Contains(out, "may not open the file") || !strings.Contains(out, "permission denied") || strings.Contains(out, "memory") {
		t.Errorf("as another user, who may not read: %s", out)
	}
}

// asNobody uses a file as a user without rights.
func asNobody(t *testing.T, path string) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs another user (run it as root)")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run=^$")
	cmd.Dir = "/"
	cmd.Env = append(os.Environ(), "LOCKER_TEST_CHILD=read", "DB="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}

// In a time namespace the clock may not be the machine's.
func TestTimeNamespace(t *testing.T) {
	t.Parallel()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		cmd := exec.Command("unshare", append(args, exe, "-test.run=^$")...)
		cmd.Env = append(os.Environ(), "LOCKER_TEST_CHILD=open", "DB="+newPath(t))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Skipf("needs unshare(1) and the right to make a time namespace: %v: %s", err, out)
		}
		return string(out)
	}
	if out := run("--fork", "--time"); !strings.Contains(out, "opened <nil>") {
		t.Errorf("without an offset: %s", out)
	}
	if out := run("--fork", "--time", "--boottime", "1000"); !strings.Contains(out, "time namespace") {
		t.Errorf("with an offset: %s", out)
	}
}

func TestHardLink(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	d := openAt(t, path)
	if err := os.Link(path, path+".link"); err != nil {
		t.Fatal(err)
	}
	refused(t, path, "2 hard links", nil)
	if err := try(t, d, "a"); err != nil { // it was opened when there was one
		t.Error(err)
	}
}

// Pipes of processes that were killed are removed by one that starts later.
func TestNotifyFolderIsSwept(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	a := openAt(t, path)
	if err := try(t, a, "a"); err != nil {
		t.Fatal(err)
	}
	awaitNotices(t, a)
	folder := path + "-notify"
	for name, age := range map[string]time.Duration{"old": time.Hour, "young": 0} {
		pipe := filepath.Join(folder, name)
		if err := unix.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(pipe, time.Now().Add(-age), time.Now().Add(-age)); err != nil {
			t.Fatal(err)
		}
	}
	b := openAt(t, path)
	if err := try(t, b, "b"); err != nil {
		t.Fatal(err)
	}
	awaitNotices(t, b)
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) != 3 { // those of the two drivers, and the young one
		t.Errorf("the folder of pipes has %v (%v)", entries, err)
	}
	if _, err := os.Stat(filepath.Join(folder, "old")); err == nil {
		t.Error("a pipe that nobody reads is there after an hour")
	}
}

// A pipe is a pipe, whatever a user who shares the database writes into it and beside it.
func TestNothingElseIsNotified(t *testing.T) {
	t.Parallel()
	path := newPath(t)
	holder, waiter := openAt(t, path), openAt(t, path)
	if err := try(t, holder, "a"); err != nil {
		t.Fatal(err)
	}
	awaitNotices(t, holder)
	file := filepath.Join(path+"-notify", "1")
	if err := os.WriteFile(file, []byte("what was there"), 0o600); err != nil {
		t.Fatal(err)
	}
	joined, done := make(chan struct{}), make(chan error)
	r := driver.Request{Name: "a", ID: "w", TTL: time.Minute, Wait: true, Joined: func() { close(joined) }}
	go func() { _, err := waiter.Acquire(within(t), r); done <- err }()
	<-joined
	execute(t, path, "UPDATE OR REPLACE processes SET id = 65536", "UPDATE tickets SET process = 65536 WHERE state <> 'held'")
	if err := holder.Release(ctx, driver.Hold{Name: "a", ID: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := waiter.Release(ctx, r.Hold(0)); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("a ticket of another process was granted")
	}
	if b, err := os.ReadFile(file); err != nil || string(b) != "what was there" {
		t.Errorf("a file has %q (%v)", b, err)
	}
}

// If the folder of pipes leads elsewhere, nothing is made or removed there.
func TestNotifyFolderIsALink(t *testing.T) {
	t.Parallel()
	path, elsewhere := newPath(t), t.TempDir()
	old := filepath.Join(elsewhere, "old")
	if err := unix.Mkfifo(old, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(old, time.Now().Add(-time.Hour), time.Now().Add(-time.Hour)); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(elsewhere, path+"-notify"); err != nil {
		t.Fatal(err)
	}
	if err := try(t, openAt(t, path), "a"); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(elsewhere)
	if err != nil || len(entries) != 1 || entries[0].Name() != "old" {
		t.Errorf("the folder has %v (%v)", entries, err)
	}
}

// While one goroutine makes the file, another does not open it: the descriptor that has made it is closed, and that
// would release the locks of the other's database.
func TestLocksOfANewFile(t *testing.T) {
	defer sqlite.SlowFiles(200 * time.Millisecond)()
	path := newPath(t)
	first := make(chan *sqlite.Driver, 1)
	go func() { first <- openAt(t, path) }()
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(path); err == nil || time.Now().After(end) {
			break
		}
	}
	openAt(t, path)
	<-first
	st, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	locks, err := os.ReadFile("/proc/locks")
	if err != nil {
		t.Skip(err)
	}
	if inode := fmt.Sprintf(":%d ", st.Sys().(*syscall.Stat_t).Ino); !strings.Contains(string(locks), inode) { //nolint:forcetypeassert // on Linux
		t.Errorf("no process has a lock on the file, which two have open: %s", locks)
	}
}

// An empty file that this user may not write to takes no locks, and Ping says so.
func TestPingOfAFileOfAnother(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "locks.db")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for file, mode := range map[string]os.FileMode{filepath.Dir(dir): 0o755, dir: 0o777} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	out := asNobody(t, path)
	if strings.Contains(out, "acquire <nil>") {
		t.Fatalf("acquired in a file of another user: %s", out)
	}
	if strings.Contains(out, "ping <nil>") || !strings.Contains(out, "permission denied") {
		t.Errorf("as another user: %s", out)
	}
}
