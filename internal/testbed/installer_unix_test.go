//go:build unix

package testbed

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A server that is being built is waited for; once the installer has ended, what is
// missing is missing.
func TestAwaitInstall(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	k := &kind{name: "late", find: func() (string, error) { return lookup([]string{"no-such-server"}) }}
	if _, err := k.awaitInstall(); err == nil {
		t.Fatal("found a server that does not exist")
	}
	bin := cacheDir("bin/no-such-server")
	if err := os.MkdirAll(filepath.Dir(bin), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(cacheDir("install.lock"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(300 * time.Millisecond) // the build
		if err := os.WriteFile(bin, nil, 0o700); err != nil {
			t.Error(err)
		}
		_ = f.Close() // and its lock
	}()
	if got, err := k.awaitInstall(); err != nil || got != bin {
		t.Errorf("got %q, %v, want the server that was built meanwhile", got, err)
	}
}

// An installer that does not end is waited for until a bound, and the error says which process holds its lock.
func TestInstallDoesNotEnd(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	k := &kind{name: "late", find: func() (string, error) { return lookup([]string{"no-such-server"}) }}
	if err := os.MkdirAll(cacheDir(""), 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(cacheDir("install.lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	_, err = k.findUntil(time.Now().Add(time.Second))
	want := []string{"no-such-server is not on this machine", "install-servers.sh has not ended", "install.log"}
	if runtime.GOOS == "linux" {
		want = append(want, fmt.Sprintf("process %d (%s", os.Getpid(), os.Args[0]))
	}
	for _, text := range want {
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("the error is %v, want %q in it", err, text)
		}
	}
}
