//go:build unix

package testbed

import (
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
)

// A process is a server started from a binary on this machine. Its methods may be called
// from any goroutine.
type process struct {
	kind    *kind
	node    *node
	logPath string

	mu       sync.Mutex
	prepared bool
	cmd      *exec.Cmd // nil while the server is down
}

// newProcess gives the node a folder and ports where it has none yet.
func newProcess(k *kind, n *node) (*process, error) {
	if err := n.reserve(k); err != nil {
		return nil, err
	}
	return &process{kind: k, node: n, logPath: n.dir + ".log"}, nil
}

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

// start does not wait until the server answers.
func (p *process) start() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		return fmt.Errorf("it runs already")
	}
	if !p.prepared && p.kind.prepare != nil {
		if err := p.kind.prepare(p.node); err != nil {
			return err
		}
	}
	p.prepared = true
	out, err := os.OpenFile(p.logPath, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	cmd := p.node.place.put(p.kind.command(p.node))
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.node.dir, out, out
	if err := startWatched(cmd); err != nil {
		return err
	}
	p.cmd = cmd
	return nil
}

// kill returns when the server is gone.
func (p *process) kill() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return nil
	}
	cmd := p.cmd
	p.cmd = nil
	err := endWatched(cmd, nil)
	if p.kind.killed != nil {
		p.kind.killed(p.node)
	}
	return err
}

func (p *process) pause() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("it is down")
	}
	return freeze(p.cmd.Process.Pid)
}

func (p *process) resume() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return fmt.Errorf("it is down")
	}
	thaw(p.cmd.Process.Pid)
	return nil
}

// ended reports whether the server has stopped by itself.
func (p *process) ended() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cmd != nil && gone(p.cmd.Process.Pid)
}

// remove deletes the data folder and lets others have the ports.
func (p *process) remove() {
	_ = os.RemoveAll(p.node.dir)
	_ = os.Remove(p.logPath)
	for _, port := range p.node.ports {
		releasePort(port)
	}
}

// log returns what the server has printed, as much of its end as is worth showing.
func (p *process) log() string {
	b, err := os.ReadFile(p.logPath)
	if err != nil {
		return err.Error()
	}
	return string(b[max(0, len(b)-4<<10):])
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
