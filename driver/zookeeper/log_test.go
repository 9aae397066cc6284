package zookeeper_test

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver/zookeeper"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestLogger: the client logs to the logger that Open is given, without secrets.
func TestLogger(t *testing.T) {
	t.Parallel()
	var b testbed.Buffer
	logger := slog.New(slog.NewTextHandler(&b, nil))
	url := strings.Replace(storeURL(t), "://", "://ann:s3cret@", 1)
	d, err := zookeeper.Open(t.Context(), url, zookeeper.WithLogger(logger), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if log := b.String(); !strings.Contains(log, "connected to 127.0.0.1") || strings.Contains(log, "s3cret") {
		t.Errorf("the log is %s", log)
	}
	if _, err := zookeeper.New(new(zk.Conn), make(chan zk.Event), zookeeper.WithLogger(logger)); err == nil || !strings.Contains(err.Error(), "WithLogger is for Open") {
		t.Errorf("New with a logger: %v", err)
	}
	for url, want := range map[string]string{"redis://h": `scheme "redis"`, "zookeeper": "malformed", "zookeeper://u:s3cret@h?x=1": "zookeeper://h: unknown parameter"} {
		if _, err := zookeeper.Open(t.Context(), url); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}
