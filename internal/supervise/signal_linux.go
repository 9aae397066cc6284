package supervise

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
)

func attributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// signalAll signals the group, and the processes outside it with the mark: each once,
// since many programs stop cleaning up after a second SIGTERM.
func signalAll(group int, mark string, sig syscall.Signal) {
	_ = syscall.Kill(-group, sig)
	for _, pid := range remaining(group, mark) {
		if p, err := os.FindProcess(pid); err == nil { // by a handle: its number is not given away meanwhile
			if isOne(pid, group, mark) && !inGroup(pid, group) {
				_ = p.Signal(sig)
			}
			_ = p.Release()
		}
	}
}

// remaining returns the live processes of the group, or with the mark.
func remaining(group int, mark string) []int {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil && pid != os.Getpid() && isOne(pid, group, mark) {
			pids = append(pids, pid)
		}
	}
	return pids
}

func isOne(pid, group int, mark string) bool {
	folder := "/proc/" + strconv.Itoa(pid)
	state, of := stat(folder)
	if state == 'Z' || state == 'X' || state == 0 {
		return false
	}
	if of == group {
		return true
	}
	env, err := os.ReadFile(folder + "/environ")
	return err == nil && (bytes.HasPrefix(env, []byte(mark+"\x00")) || bytes.Contains(env, []byte("\x00"+mark+"\x00")))
}

func inGroup(pid, group int) bool {
	_, of := stat("/proc/" + strconv.Itoa(pid))
	return of == group
}

// stat returns the state and the group of a process; 0 if it is gone.
func stat(folder string) (state byte, group int) {
	text, err := os.ReadFile(folder + "/stat")
	if err != nil {
		return 0, 0
	}
	// pid (name) state parent group …, where the name may hold anything
	fields := bytes.Fields(text[bytes.LastIndexByte(text, ')')+1:])
	if len(fields) < 3 {
		return 0, 0
	}
	group, _ = strconv.Atoi(string(fields[2]))
	return fields[0][0], group
}
