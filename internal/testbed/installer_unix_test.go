//go:build unix

package testbed

import (
	"os"
	"path/filepath"
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
