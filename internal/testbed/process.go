package testbed

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync"
)

// running is a process while it runs. Its methods may be called from any goroutine.
type running struct {
	mu  sync.Mutex
	cmd *exec.Cmd // nil: there is none
}

var errDown = errors.New("it is down")

// kill returns when the process is gone; if there is none, at once. readRest: see endWatched.
func (r *running) kill(readRest func()) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		return nil
	}
	cmd := r.cmd
	r.cmd = nil
	return endWatched(cmd, readRest)
}

func (r *running) pause() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		return errDown
	}
	return freeze(r.cmd.Process.Pid)
}

func (r *running) resume() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cmd == nil {
		return errDown
	}
	thaw(r.cmd.Process.Pid)
	return nil
}

// ended reports whether the process has stopped by itself.
func (r *running) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cmd != nil && gone(r.cmd.Process.Pid)
}

// A process is a server started from a binary on this machine.
type process struct {
	running
	kind     *kind
	node     *node
	logPath  string
	prepared bool
}

// newProcess gives the node a folder and ports where it has none yet.
func newProcess(k *kind, n *node) (*process, error) {
	if err := n.reserve(k); err != nil {
		return nil, err
	}
	return &process{kind: k, node: n, logPath: n.dir + ".log"}, nil
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

// stop kills the server, and removes what that leaves.
func (p *process) stop() error {
	err := p.kill(nil)
	if p.kind.killed != nil {
		p.kind.killed(p.node)
	}
	return err
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
