package testbed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"testing"
)

var redis = &kind{
	name:   "redis",
	scheme: "redis",
	ports:  1,
	find:   func() (string, error) { return lookup([]string{"redis-server", "valkey-server"}, "/usr/bin") },
	command: func(n *node) *exec.Cmd {
		args := []string{
			"--port", strconv.Itoa(n.ports[0]), "--bind", n.host(), "--protected-mode", yesNo(n.place.Host == ""), "--dir", n.dir,
			"--save", "", "--maxclients", "19000", "--loglevel", "warning",
			"--appendonly", yesNo(n.opts.durable), "--appendfsync", "always",
		}
		return exec.Command(n.bin, append(append(args, n.args...), n.opts.args...)...)
	},
	ready: func(ctx context.Context, addr string, _ options) error {
		_, err := redisCall(ctx, addr, "PING")
		if err != nil && strings.HasPrefix(err.Error(), "NOAUTH") {
			return nil // it answers, and wants a password that only the test knows
		}
		return err
	},
}

// Redis starts a Redis for this test alone. It listens on loopback, keeps
// nothing on disk unless [Durable] or [Args] says so, and is killed when the
// test ends.
var Redis = redis.private

// SharedRedis returns the Redis that all tests of this process share. They
// must use names of their own, and not stop it.
var SharedRedis = redis.share

// RedisN starts n separate Redis servers, as Redlock has them.
func RedisN(tb testing.TB, n int, opts ...Option) *Ensemble {
	tb.Helper()
	e := newEnsemble(tb, redis, n, opts, nil)
	e.url = func(addrs string) string { return "redlock://" + addrs }
	e.begin()
	return e
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

// redisCall sends one command on a connection of its own, and returns the
// answer: a string for simple answers, one line for each element of an array.
func redisCall(ctx context.Context, addr string, args ...string) (string, error) {
	c, err := dialContext(ctx, addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, a := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(a), a)
	}
	if _, err := c.Write([]byte(b.String())); err != nil {
		return "", err
	}
	return redisReply(bufio.NewReader(c))
}

func redisReply(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	kind, body := line[0], strings.TrimRight(line[1:], "\r\n")
	n, _ := strconv.Atoi(body) // of bytes, or of elements; -1: there is nothing
	switch kind {
	case '-':
		return "", errors.New(body)
	case '$':
		b := make([]byte, max(0, n+len("\r\n")))
		_, err = io.ReadFull(r, b)
		return strings.TrimSuffix(string(b), "\r\n"), err
	case '*':
		lines := make([]string, max(0, n))
		for i := range lines {
			if lines[i], err = redisReply(r); err != nil {
				return "", err
			}
		}
		return strings.Join(lines, "\n"), nil
	}
	return body, nil
}
