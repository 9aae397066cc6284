package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/internal/testbed"
)

// A real Prometheus scrapes a program, says of a lost lock within seconds, finds all rules
// in order, and answers every query of the dashboard.
func TestPrometheus(t *testing.T) {
	binary := program(t, "prometheus")
	metrics, handler, err := newMetrics()
	if err != nil {
		t.Fatal(err)
	}
	l, err := open(t.Context(), testbed.SharedRedis(t).URL(), metrics, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	web := httptest.NewServer(handler)
	defer web.Close()
	p := startPrometheus(t, binary, web.Listener.Addr().String())

	await(t, "the first scrape", func() bool { return len(p.query(t, "locker_losses_total")) > 0 })
	if n := len(p.query(t, `ALERTS{alertstate="firing"}`)); n != 0 {
		t.Errorf("%d alerts fire, and nothing has happened", n)
	}
	k, err := l.Acquire(t.Context(), "prometheus:"+t.Name())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Break(t.Context(), k.Name(), k.Token()); err != nil {
		t.Fatal(err)
	}
	<-k.Done()
	await(t, "the alert", func() bool {
		return len(p.query(t, `ALERTS{alertname="LockerLockLost", alertstate="firing", error_type="removed", severity="critical"}`)) == 1
	})
	await(t, "the rules", func() bool { return p.healthy(t) })
	for _, e := range readDashboard(t).exprs() {
		p.query(t, e.text)
	}
}

// server is a Prometheus of a test.
type server struct{ url string }

// startPrometheus starts one that scrapes the target each half second, with the rules.
func startPrometheus(t *testing.T, binary, target string) server {
	t.Helper()
	rules, err := filepath.Abs(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := fmt.Sprintf("global: {scrape_interval: 500ms, evaluation_interval: 500ms}\n"+
		"rule_files: [%q]\nscrape_configs: [{job_name: shop, static_configs: [{targets: [%q]}]}]\n", rules, target)
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := fmt.Sprintf("127.0.0.1:%d", testbed.Port(t))
	cmd := exec.CommandContext(t.Context(), binary, "--config.file", filepath.Join(dir, "prometheus.yml"),
		"--storage.tsdb.path", filepath.Join(dir, "data"), "--web.listen-address", addr, "--log.level", "error")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 10 * time.Second
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() }) // the test's context has ended
	s := server{"http://" + addr}
	await(t, "Prometheus", func() bool { return strings.Contains(s.get(t, "/-/ready"), "Ready") })
	return s
}

func (s server) get(t *testing.T, path string) string {
	t.Helper()
	return get(t, s.url+path)
}

// query returns the series that a query finds; one that is wrong fails the test.
func (s server) query(t *testing.T, q string) []json.RawMessage {
	t.Helper()
	var answer struct {
		Status string
		Data   struct{ Result []json.RawMessage }
	}
	raw := s.get(t, "/api/v1/query?query="+url.QueryEscape(q))
	if err := json.Unmarshal([]byte(raw), &answer); err != nil || answer.Status != "success" {
		t.Fatalf("%s: %v, %s", q, err, raw)
	}
	return answer.Data.Result
}

// healthy reports whether all rules have been evaluated without an error.
func (s server) healthy(t *testing.T) bool {
	t.Helper()
	var answer struct {
		Data struct {
			Groups []struct {
				Rules []struct{ Name, Health, LastError string }
			}
		}
	}
	if err := json.Unmarshal([]byte(s.get(t, "/api/v1/rules")), &answer); err != nil {
		t.Fatal(err)
	}
	evaluated := 0
	for _, g := range answer.Data.Groups {
		for _, r := range g.Rules {
			if r.Health == "err" {
				t.Fatalf("%s: %s", r.Name, r.LastError)
			}
			if r.Health == "ok" {
				evaluated++
			}
		}
	}
	return evaluated == len(ruleExprs(t))
}
