package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/internal/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// get returns what the address answers; empty: nothing yet.
func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	res, err := client.Do(req)
	if err != nil {
		return ""
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if res.StatusCode == http.StatusServiceUnavailable {
		return ""
	}
	if err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("%s answers %s, %s, %v", url, res.Status, body, err)
	}
	return string(body)
}

// await calls f until it is true.
func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	for until := time.Now().Add(time.Minute); !f(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%s: not within a minute", what)
		}
	}
}

// The program shows its metrics, logs who held what, and ends with its context.
func TestProgram(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	addr := fmt.Sprintf("127.0.0.1:%d", testbed.Port(t))
	var log bytes.Buffer
	done := make(chan error, 1)
	go func() { done <- run(ctx, "memory://telemetry", addr, slog.New(slog.NewJSONHandler(&log, nil))) }()
	for _, metric := range []string{"locker_hold_duration_seconds_count{", `locker_queue_length{locker_lock_name="order:0"`} {
		await(t, metric, func() bool { return strings.Contains(get(t, "http://"+addr+"/metrics"), metric) })
	}
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	released := 0
	for line := range strings.Lines(log.String()) {
		var r map[string]any
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if r["msg"] == "lock released" {
			released++
		}
	}
	if released == 0 {
		t.Errorf("no release in the log:\n%s", log.String())
	}
	if err := run(t.Context(), "nosuch://", addr, slog.New(slog.DiscardHandler)); err == nil {
		t.Error("no error for a store that nobody knows")
	}
}
