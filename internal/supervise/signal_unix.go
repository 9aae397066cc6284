//go:build unix && !linux

package supervise

import "syscall"

func attributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// signalAll signals the group: other systems do not show the mark.
func signalAll(group int, _ string, sig syscall.Signal) { _ = syscall.Kill(-group, sig) }

// remaining returns the group if it has a process, or nothing.
func remaining(group int, _ string) []int {
	if syscall.Kill(-group, 0) != nil {
		return nil
	}
	return []int{group}
}
