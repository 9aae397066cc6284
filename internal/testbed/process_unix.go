//go:build unix

package testbed

import (
	"os"
	"os/exec"
	"syscall"
)

// reserve gives the node what it needs before it can be configured.
func (n *node) reserve(k *kind) error {
	base, err := watch.folder(n.opts.durable)
	if err != nil {
		return err
	}
	if n.dir == "" {
		if n.dir, err = os.MkdirTemp(base, k.name+"-"); err != nil {
			return err
		}
	}
	for len(n.ports) < max(k.ports, 1) {
		p, err := reservePort()
		if err != nil {
			return err
		}
		n.ports = append(n.ports, p)
	}
	return nil
}

// startWatched starts cmd in a process group of its own, which the watcher
// ends should this process die first.
func startWatched(cmd *exec.Cmd) error {
	if _, err := watch.folder(true); err != nil { // starts the watcher
		return err
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Setpgid = true
	if err := cmd.Start(); err != nil {
		return err
	}
	watch.send("+ %d", cmd.Process.Pid)
	return nil
}

// endWatched kills cmd and all that it started, and returns when they are gone.
// readRest, if any, reads the rest of cmd's output, which cmd.Wait would close.
func endWatched(cmd *exec.Cmd, readRest func()) error {
	pids := killTree(cmd.Process.Pid)
	if readRest != nil {
		readRest()
	}
	_ = cmd.Wait() // it was killed: that is no error
	watch.send("- %d", cmd.Process.Pid)
	return awaitGone(pids)
}
