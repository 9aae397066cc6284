package redis_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestLogTo runs in a process of its own: the logger is the process's.
func TestLogTo(t *testing.T) {
	t.Parallel()
	p := child(t, "log", fmt.Sprintf("redis://me:s3cret@127.0.0.1:%d", testbed.Port(t)), "")
	if line := p.WaitLine("time="); strings.Contains(line, "s3cret") || !strings.Contains(line, "connection refused") {
		t.Errorf("the log is %q", line)
	}
}

// childLogs asks for a server that is not there.
func childLogs() {
	redis.LogTo(slog.New(slog.NewTextHandler(os.Stdout, nil)))
	l, err := locker.Open(context.Background(), os.Getenv("URL"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = l.Ping(context.Background())
	_ = l.Close()
}
