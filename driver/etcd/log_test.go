package etcd_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver/etcd"
	"github.com/lockerproject/locker/internal/testbed"
)

// The client logs to the logger that Open is given, with levels and attributes, and
// without secrets.
func TestLogger(t *testing.T) {
	t.Parallel()
	var b testbed.Buffer
	logger := slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelWarn}))
	d, err := etcd.Open(t.Context(), fmt.Sprintf("etcd://127.0.0.1:%d", testbed.Port(t)), etcd.WithLogger(logger))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if err := d.Ping(ctx); err == nil {
		t.Error("Ping found a server")
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	for _, part := range []string{"level=WARN", "retrying of unary invoker failed", "method=/etcdserverpb.KV/Range", "connection refused"} {
		if !strings.Contains(b.String(), part) {
			t.Errorf("the log does not say %q: %s", part, b.String())
		}
	}
	if _, err := etcd.New(newClient(t, "127.0.0.1:1"), etcd.WithLogger(logger)); err == nil || !strings.Contains(err.Error(), "WithLogger is for Open") {
		t.Errorf("New with a logger: %v", err)
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	d, err := etcd.Open(t.Context(), srv.URL()+"?prefix=unused", etcd.WithPrefix(randomPrefix()), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	release(t, d, acquire(t, d, request("a", "id-open", time.Minute)))
	if n := count(t, newClient(t, srv.Addr()), "unused"); n != 0 {
		t.Error("the URL counts for more than the option")
	}
	for url, want := range map[string]string{"redis://h": `scheme "redis"`, "etcd": "malformed", "etcd://u:s3cret@h?x=1": "etcd://h: unknown parameter"} {
		if _, err := etcd.Open(t.Context(), url); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}
