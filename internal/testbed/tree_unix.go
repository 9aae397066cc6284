//go:build unix

package testbed

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A server may be several processes, and not all in one process group: each
// PostgreSQL backend is a session of its own. So faults are done to the tree
// of processes, parents first, since a frozen parent has no new children.
// Without /proc (not Linux) they are done to the process group.

// tree calls f with root and with all that descend from it, and returns them.
func tree(root int, f func(pid int)) []int {
	f(root)
	pids := []int{root}
	for _, child := range children(root) {
		pids = append(pids, tree(child, f)...)
	}
	return pids
}

func children(pid int) []int {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var pids []int
	for _, file := range files {
		b, _ := os.ReadFile(file) // the thread may have ended
		for _, word := range strings.Fields(string(b)) {
			if n, err := strconv.Atoi(word); err == nil {
				pids = append(pids, n)
			}
		}
	}
	return pids
}

func signal(sig syscall.Signal) func(int) {
	return func(pid int) { _ = syscall.Kill(pid, sig) } // it may have ended
}

func killTree(root int) []int {
	pids := tree(root, signal(syscall.SIGSTOP))
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	_ = syscall.Kill(-root, syscall.SIGKILL)
	return pids
}

// freeze stops the tree, and returns when all of it stands still.
func freeze(root int) error {
	_ = syscall.Kill(-root, syscall.SIGSTOP)
	pids := tree(root, signal(syscall.SIGSTOP))
	return poll("freeze", pids, func(pid int) bool {
		s := state(pid)
		return s == 'T' || s == 't' || s == 'Z' || s == 0
	})
}

func thaw(root int) {
	_ = syscall.Kill(-root, syscall.SIGCONT)
	tree(root, signal(syscall.SIGCONT))
}

func awaitGone(pids []int) error { return poll("kill", pids, gone) }

func poll(verb string, pids []int, done func(int) bool) error {
	deadline := time.Now().Add(10 * time.Second)
	for _, pid := range pids {
		for !done(pid) {
			if time.Now().After(deadline) {
				return fmt.Errorf("%s: process %d is still in state %c", verb, pid, state(pid))
			}
			time.Sleep(time.Millisecond)
		}
	}
	return nil
}

// gone tells whether the process has ended, whether or not it was waited for.
func gone(pid int) bool {
	if !haveProc {
		return syscall.Kill(pid, 0) != nil
	}
	s := state(pid)
	return s == 0 || s == 'Z' || s == 'X'
}

var haveProc = func() bool { _, err := os.Stat("/proc/self/stat"); return err == nil }()

// state is the letter that ps shows (R, S, D, T, Z, …); 0 when there is no
// such process, or no /proc.
func state(pid int) byte {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The program's name, in parentheses before the state, may hold anything.
	if i := bytes.LastIndexByte(b, ')'); i >= 0 && i+2 < len(b) {
		return b[i+2]
	}
	return 0
}
