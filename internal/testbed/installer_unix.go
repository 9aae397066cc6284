//go:build unix

package testbed

import (
	"os"
	"syscall"
	"time"
)

// awaitInstall is k.find. While scripts/install-servers.sh runs, it waits for what is
// not there yet: `make test` begins before all servers are built.
func (k *kind) awaitInstall() (string, error) {
	for {
		running := installing()
		bin, err := k.find()
		if err == nil || !running {
			return bin, err
		}
		time.Sleep(200 * time.Millisecond)
	}
}

// installing reports whether somebody holds the lock of scripts/install-servers.sh.
func installing() bool {
	f, err := os.Open(cacheDir("install.lock"))
	if err != nil {
		return false
	}
	defer f.Close()
	return syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) != nil
}
