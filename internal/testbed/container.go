package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A container is a server for machines that have a container engine and not the
// server. The program internal/containers runs it, by testcontainers-go, which
// so is no requirement of the module: one process a container, obeying its
// standard input and removing the container when that ends, however this
// process does.
type container struct {
	node    *node
	helper  *exec.Cmd
	in, out *os.File
	answers *json.Decoder
	errors  string // what the helper says besides is in this file
	down    bool
	frozen  bool
}

// engine tells, once, why no container can be started.
var engine = sync.OnceValue(findEngine)

// findEngine must answer at once where there is no engine, and does so before
// the helper is compiled.
func findEngine() error {
	if _, err := exec.LookPath("docker"); err != nil {
		return errors.New("there is no docker command")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if err := exec.CommandContext(ctx, "docker", "version", "--format", "{{.Server.Version}}").Run(); err != nil {
		return errors.New("docker finds no engine")
	}
	return nil
}

// quick bounds what an engine does with a container that is there. The first
// one may take a compilation of the helper and the download of an image.
const (
	quick = time.Minute
	slow  = 10 * time.Minute
)

func newContainer(k *kind, n *node) (*container, error) {
	if k.image == nil || len(n.args)+len(n.conf) > 0 || n.opts.secured() {
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
	c := &container{node: n, down: true}
	if err := c.create(k); err != nil {
		c.remove()
		// One line, whatever the compiler or the engine said.
		return nil, fmt.Errorf("no container of %s: %s", k.name, strings.Join(strings.Fields(err.Error()), " "))
	}
	return c, nil
}

// helper compiles internal/containers, once a process: the containers of one
// process then share one reaper, which testcontainers has as a second safeguard.
var helper = sync.OnceValues(func() (string, error) {
	base, err := watch.folder(true)
	if err != nil {
		return "", err
	}
	dir := helperDir()
	if _, err := os.Stat(dir); err != nil { // built with -trimpath, or moved
		return "", errors.New("the sources of internal/containers are not where they were compiled")
	}
	program := filepath.Join(base, fmt.Sprintf("containers-%d.exe", os.Getpid()))
	build := exec.Command("go", "build", "-o", program, ".")
	build.Dir = dir
	build.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=", "GOOS=", "GOARCH=")
	return program, run(build)
})

// helperDir is where the sources of internal/containers are.
func helperDir() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(filepath.Dir(file)), "containers")
}

func (c *container) create(k *kind) error {
	program, err := helper()
	if err != nil {
		return err
	}
	args := []string{"-port", strconv.Itoa(c.node.ports[0])}
	for _, e := range k.image.env {
		args = append(args, "-env", e)
	}
	args = append(args, k.name)
	if (c.node.opts.durable || c.node.opts.kept) && k.image.durable != nil {
		args = append(args, k.image.durable...)
	} else {
		args = append(args, k.image.args...)
	}
	c.helper = exec.Command(program, append(args, c.node.opts.args...)...)
	c.helper.Dir = helperDir() // it reads docker-compose.yml, two folders above
	c.helper.Env = append(os.Environ(), "TESTCONTAINERS_HOST_OVERRIDE=127.0.0.1")
	// The first brings up the reaper, for which others at the same time would not wait.
	creating.Lock()
	defer creating.Unlock()
	if err := c.begin(); err != nil {
		return err
	}
	_, err = c.answer(slow)
	return err
}

var creating sync.Mutex

// begin starts the helper, with pipes that take no goroutines.
func (c *container) begin() error {
	base, err := watch.folder(true)
	if err != nil {
		return err
	}
	stderr, err := os.CreateTemp(base, "containers-*.log")
	if err != nil {
		return err
	}
	defer stderr.Close()
	c.errors = stderr.Name()
	stdin, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer stdin.Close()
	out, stdout, err := os.Pipe()
	if err != nil {
		_ = in.Close()
		return err
	}
	defer stdout.Close()
	c.in, c.out, c.answers = in, out, json.NewDecoder(out)
	c.helper.Stdin, c.helper.Stdout, c.helper.Stderr = stdin, stdout, stderr
	return c.helper.Start()
}

// ask has the helper do something.
func (c *container) ask(verb string) (string, error) {
	if _, err := io.WriteString(c.in, verb+"\n"); err != nil {
		return "", c.broken(err)
	}
	return c.answer(quick)
}

func (c *container) answer(limit time.Duration) (string, error) {
	var a struct{ Out, Error string }
	_ = c.out.SetReadDeadline(time.Now().Add(limit)) // a pipe can have one, but on Windows
	if err := c.answers.Decode(&a); err != nil {
		return "", c.broken(err)
	}
	if a.Error != "" {
		return "", errors.New(a.Error)
	}
	return a.Out, nil
}

// broken closes the pipe to a helper that answers no more, so that it ends.
func (c *container) broken(err error) error {
	_ = c.in.Close()
	text, _ := os.ReadFile(c.errors)
	return fmt.Errorf("internal/containers: %w: %s", err, text)
}

func (c *container) start() error {
	if !c.down {
		return errors.New("it runs already")
	}
	_, err := c.ask("start")
	c.down = err != nil
	return err
}

func (c *container) kill() error {
	if c.down {
		return nil
	}
	if c.frozen { // Docker refuses to kill what is paused
		if err := c.resume(); err != nil {
			return err
		}
	}
	c.down = true
	_, err := c.ask("kill")
	return err
}

func (c *container) pause() error {
	_, err := c.ask("pause")
	c.frozen = c.frozen || err == nil
	return err
}

func (c *container) resume() error {
	_, err := c.ask("resume")
	c.frozen = c.frozen && err != nil
	return err
}

func (c *container) ended() bool {
	state, err := c.ask("state")
	return !c.down && (err != nil || state == "exited" || state == "dead")
}

func (c *container) log() string {
	text, err := c.ask("log")
	if err != nil {
		return err.Error()
	}
	return text
}

// remove ends the helper, which removes the container, and waits for both.
func (c *container) remove() {
	if c.in != nil {
		_ = c.in.Close()
		_ = c.helper.Wait() // what went wrong was said by the answers
		_ = c.out.Close()
	}
	_ = os.Remove(c.errors)
	for _, port := range c.node.ports {
		releasePort(port)
	}
}
