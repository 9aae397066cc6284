package testbed

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// A container is a server run by the docker command, for machines that have
// an engine and not the server.
type container struct {
	kind   *kind
	node   *node
	id     string // "" until the first start
	down   bool
	frozen bool
}

// engine tells, once, why the docker command cannot start containers. It must
// answer at once where there is none.
var engine = sync.OnceValue(func() error {
	if _, err := exec.LookPath("docker"); err != nil {
		return errors.New("there is no docker command")
	}
	if _, err := docker(2*time.Second, "version", "--format", "{{.Server.Version}}"); err != nil {
		return errors.New("docker finds no engine")
	}
	return nil
})

// docker runs the docker command and returns what it printed.
func docker(timeout time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(out))
	if err != nil {
		return "", fmt.Errorf("docker %s: %w: %s", args[0], err, text)
	}
	return text, nil
}

func newContainer(k *kind, n *node) (*container, error) {
	if k.image.ref == "" || len(n.args)+len(n.conf) > 0 || n.opts.secured() {
		return nil, errors.New("a container will not do")
	}
	if err := engine(); err != nil {
		return nil, err
	}
	if len(n.ports) == 0 {
		port, err := reservePort()
		if err != nil {
			return nil, err
		}
		n.ports = []int{port}
	}
	return &container{kind: k, node: n, down: true}, nil
}

// quick bounds what docker does with an image that is there; the first run may
// have to pull it.
const (
	quick = 30 * time.Second
	slow  = 3 * time.Minute
)

func (c *container) start() error {
	if !c.down {
		return errors.New("it runs already")
	}
	if c.id == "" {
		return c.create()
	}
	_, err := docker(quick, "start", c.id)
	c.down = err != nil
	return err
}

func (c *container) create() error {
	if _, err := watch.folder(); err != nil { // starts the watcher
		return err
	}
	img := c.kind.image
	args := []string{"run", "--detach", "--publish", fmt.Sprintf("127.0.0.1:%d:%d", c.node.ports[0], img.port)}
	for _, e := range img.env {
		args = append(args, "--env", e)
	}
	args = append(args, img.ref)
	args = append(args, img.args...)
	out, err := docker(slow, append(args, c.node.opts.args...)...)
	if err != nil {
		return err
	}
	// A pull prints its progress before the id.
	c.id = out[strings.LastIndexByte(out, '\n')+1:]
	c.down = false
	watch.tell("+ box:%s", c.id)
	return nil
}

func (c *container) kill() error {
	if c.down {
		return nil
	}
	if c.frozen { // docker refuses to kill what is paused
		if err := c.resume(); err != nil {
			return err
		}
	}
	c.down = true
	_, err := docker(quick, "kill", c.id)
	return err
}

func (c *container) pause() error {
	_, err := docker(quick, "pause", c.id)
	c.frozen = c.frozen || err == nil
	return err
}

func (c *container) resume() error {
	_, err := docker(quick, "unpause", c.id)
	c.frozen = c.frozen && err != nil
	return err
}

func (c *container) ended() bool {
	state, err := docker(quick, "inspect", "--format", "{{.State.Status}}", c.id)
	return !c.down && (err != nil || state == "exited" || state == "dead")
}

func (c *container) log() string {
	out, err := docker(quick, "logs", "--tail", "50", c.id)
	if err != nil {
		return err.Error()
	}
	return out
}

func (c *container) remove() {
	if c.id != "" {
		_, _ = docker(quick, "rm", "--force", "--volumes", c.id)
		watch.tell("- box:%s", c.id)
	}
	for _, port := range c.node.ports {
		releasePort(port)
	}
}
