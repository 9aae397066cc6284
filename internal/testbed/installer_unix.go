//go:build unix

package testbed

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// installWait is how long the tests of one process wait for the installer, all of them together: it
// is less than `make test` gives them.
const installWait = 15 * time.Minute

var processBegan = time.Now()

// awaitInstall is k.find. While scripts/install-servers.sh runs, it waits for what is
// not there yet: `make test` begins before all servers are built.
func (k *kind) awaitInstall() (string, error) { return k.findUntil(processBegan.Add(installWait)) }

func (k *kind) findUntil(end time.Time) (string, error) {
	for {
		running := installing()
		bin, err := k.find()
		if err == nil || !running {
			return bin, err
		}
		if !time.Now().Before(end) {
			lock := cacheDir("install.lock")
			return "", fmt.Errorf("%w, and scripts/install-servers.sh has not ended for %v: see %s; %s is locked, and open in %s",
				err, time.Since(processBegan).Round(time.Second), cacheDir("install.log"), lock, strings.Join(whoHas(lock), ", "))
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

// whoHas names the processes that have a file open, as far as /proc says.
func whoHas(file string) (who []string) {
	fds, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, fd := range fds {
		if target, err := os.Readlink(fd); err != nil || target != file {
			continue
		}
		process := filepath.Dir(filepath.Dir(fd))
		line, _ := os.ReadFile(filepath.Join(process, "cmdline"))
		name := fmt.Sprintf("process %s (%s)", filepath.Base(process), bytes.TrimSpace(bytes.ReplaceAll(line, []byte{0}, []byte{' '})))
		if len(who) == 0 || who[len(who)-1] != name {
			who = append(who, name)
		}
	}
	if len(who) == 0 {
		return []string{"a process that /proc does not show"}
	}
	return who
}
