package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel"
	"go.yaml.in/yaml/v2"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testbed"
	lockerotel "github.com/lockerproject/locker/observe/otel"
)

const (
	rulesFile     = "../../deploy/prometheus/locker.rules.yml"
	dashboardFile = "../../deploy/grafana/locker.json"
)

// expr is a query of the rules or of the dashboard.
type expr struct{ of, text string }

// ruleExprs are the queries of the alerts.
func ruleExprs(t *testing.T) (all []expr) {
	t.Helper()
	raw, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []struct{ Alert, Expr string }
		}
	}
	if err := yaml.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			all = append(all, expr{"the alert " + r.Alert, r.Expr})
		}
	}
	return all
}

// dashboard is the part of the dashboard's JSON that tests look at.
type dashboard struct {
	UID           string
	SchemaVersion int
	Templating    struct {
		List []struct {
			Name  string
			Type  string
			Query any
		}
	}
	Panels []struct {
		ID         int
		Type       string
		Title      string
		Datasource struct{ Type, UID string }
		GridPos    struct{ X, Y, W, H int }
		Targets    []struct {
			RefID      string
			Expr       string
			Datasource struct{ Type, UID string }
		}
	}
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	raw, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(raw, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// exprs are the queries of the panels, with values for Grafana's variables.
func (d dashboard) exprs() (all []expr) {
	values := strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$job", ".*", "$store", ".*")
	for _, p := range d.Panels {
		for _, q := range p.Targets {
			all = append(all, expr{fmt.Sprintf("the panel %q", p.Title), values.Replace(q.Expr)})
		}
	}
	return all
}

var (
	braces = regexp.MustCompile(`\{[^}]*\}`)
	lists  = regexp.MustCompile(`\b(by|without|on|ignoring) \(([^)]*)\)`)
	word   = regexp.MustCompile(`\blocker_[a-z_]+`)
	match  = regexp.MustCompile(`([a-z_]+)(=~|!~|!=|=)"([^"]*)"`)
	listed = regexp.MustCompile(`[a-z_]+`)
)

// scrape is what a program shows to Prometheus.
type scrape string

// has reports whether there is a series of that name.
func (s scrape) has(metric string) bool {
	return strings.Contains("\n"+string(s), "\n"+metric+"{")
}

// labelled reports whether some series has the label and, unless it is empty, the value.
func (s scrape) labelled(label, value string) bool {
	if label == "job" || label == "instance" { // Prometheus adds them
		return true
	}
	if value != "" {
		return strings.Contains(string(s), label+`="`+value+`"`)
	}
	return strings.Contains(string(s), "{"+label+"=") || strings.Contains(string(s), ","+label+"=")
}

// Every metric, label and value that the rules and the dashboard ask for is one that a
// program on a real store shows.
func TestNamesInDeployExist(t *testing.T) {
	shown := everything(t)
	seen := map[string]bool{}
	for _, e := range append(ruleExprs(t), readDashboard(t).exprs()...) {
		for _, m := range match.FindAllStringSubmatch(e.text, -1) {
			value := m[3]
			if m[2] != "=" {
				value = ""
			}
			if !shown.labelled(m[1], value) {
				t.Errorf("%s asks for %s: there is none", e.of, m[0])
			}
		}
		for _, list := range lists.FindAllStringSubmatch(e.text, -1) {
			for _, label := range listed.FindAllString(list[2], -1) {
				if !shown.labelled(label, "") {
					t.Errorf("%s groups by %s: there is no such label", e.of, label)
				}
			}
		}
		bare := lists.ReplaceAllString(braces.ReplaceAllString(e.text, " "), " ")
		metrics := word.FindAllString(bare, -1)
		if len(metrics) == 0 {
			t.Errorf("%s asks for no metric: %s", e.of, e.text)
		}
		for _, metric := range metrics {
			seen[metric] = true
			if !shown.has(metric) {
				t.Errorf("%s asks for %s: there is no such metric", e.of, metric)
			}
		}
	}
	doc, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range word.FindAllString(string(doc), -1) {
		if !shown.has(name) && !shown.has(name+"_bucket") {
			t.Errorf("docs/observability.md speaks of %s: there is no such metric", name)
		}
	}
	// And nothing that is shown is left out of the dashboard.
	for line := range strings.Lines(string(shown)) {
		if name, found := strings.CutPrefix(line, "# TYPE locker_"); found {
			name, kind, _ := strings.Cut(strings.TrimSpace(name), " ")
			if kind == "histogram" {
				name += "_bucket"
			}
			if !seen["locker_"+name] {
				t.Errorf("no rule and no panel asks for locker_%s", name)
			}
		}
	}
}

// everything has all happen to locks that can, on a real store, and returns the scrape.
func everything(t *testing.T) scrape {
	t.Helper()
	server := testbed.Redis(t, testbed.Faults())
	metrics, handler, err := newMetrics()
	if err != nil {
		t.Fatal(err)
	}
	l, err := open(t.Context(), server.URL(), metrics, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	queues, err := lockerotel.ObserveQueues(l, []string{"order:0"}, lockerotel.WithMeterProvider(metrics))
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(handler)
	defer web.Close()
	show := func() string { return get(t, web.URL) }

	contend(t, l)
	k, err := l.Acquire(t.Context(), "order:0", locker.WithTTL(3*time.Second)) // renewed after one
	if err != nil {
		t.Fatal(err)
	}
	up := ""
	await(t, "a renewal", func() bool {
		up = show()
		return strings.Contains(up, "locker_renew_duration_seconds_count")
	})
	server.Kill()
	<-k.Done()
	if _, err := l.TryAcquire(t.Context(), "order:0"); err == nil {
		t.Fatal("a store that is down grants")
	}
	// A queue that cannot be asked for costs no other metric.
	var unasked error
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { unasked = err }))
	down := scrape(show())
	if !errors.Is(unasked, locker.ErrUnavailable) || down.has("locker_queue_length") || !down.has("locker_losses_total") {
		t.Errorf("while the store is down: %v, and the metrics\n%s", unasked, down)
	}
	if err := queues.Unregister(); err != nil {
		t.Fatal(err)
	}
	server.Start()
	return scrape(up) + down
}

// contend has a waiter wait, and a try be refused.
func contend(t *testing.T, l *locker.Client) {
	t.Helper()
	ctx := t.Context()
	k, err := l.Acquire(ctx, "order:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.TryAcquire(ctx, "order:0"); err == nil {
		t.Fatal("two hold the lock")
	}
	go func() {
		await(t, "a waiter", func() bool { q, _ := l.Inspect(ctx, "order:0"); return len(q.Tickets) == 2 })
		_ = k.Release(ctx)
	}()
	k, err = l.Acquire(ctx, "order:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Release(ctx); err != nil {
		t.Fatal(err)
	}
}

// What Grafana needs to show a dashboard is there and makes sense.
func TestDashboard(t *testing.T) {
	d := readDashboard(t)
	if d.UID == "" || len(d.UID) > 40 || d.SchemaVersion == 0 {
		t.Errorf("uid %q, schema version %d", d.UID, d.SchemaVersion)
	}
	var variables []string
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
	}
	if !slices.Equal(variables, []string{"datasource", "job", "store"}) {
		t.Errorf("the variables are %v", variables)
	}
	ids, cells := map[int]string{}, map[[2]int]string{}
	for _, p := range d.Panels {
		if other := ids[p.ID]; other != "" || p.ID == 0 {
			t.Errorf("%s has the ID of %s: %d", p.Title, other, p.ID)
		}
		ids[p.ID] = p.Title
		if p.GridPos.W < 1 || p.GridPos.H < 1 || p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s does not fit: %+v", p.Title, p.GridPos)
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if other := cells[at]; other != "" {
					t.Fatalf("%s lies over %s", p.Title, other)
				}
				cells[at] = p.Title
			}
		}
		if p.Type == "row" {
			continue
		}
		if !slices.Contains([]string{"stat", "timeseries", "heatmap"}, p.Type) || len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
			t.Errorf("%s: type %s, %d targets, data source %+v", p.Title, p.Type, len(p.Targets), p.Datasource)
		}
		refs := map[string]bool{}
		for _, q := range p.Targets {
			if refs[q.RefID] || q.RefID == "" || q.Datasource != p.Datasource {
				t.Errorf("%s: target %+v", p.Title, q)
			}
			refs[q.RefID] = true
		}
	}
}

// promtool finds nothing wrong with the rules, and each alert fires when it should, and
// only then: locker.rules.test.yml says when.
func TestRules(t *testing.T) {
	promtool := program(t, "promtool")
	for _, args := range [][]string{
		{"check", "config", "prometheus.yml"},
		{"check", "rules", "--lint=all", "--lint-fatal", "locker.rules.yml"},
		{"test", "rules", "locker.rules.test.yml"},
	} {
		cmd := exec.CommandContext(t.Context(), promtool, args...)
		cmd.Dir = "../../deploy/prometheus"
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	tested, err := os.ReadFile("../../deploy/prometheus/locker.rules.test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range ruleExprs(t) {
		name := strings.TrimPrefix(e.of, "the alert ")
		fires := regexp.MustCompile(`alertname: ` + name + `\n\s+exp_alerts:\n`).Match(tested)
		silent := regexp.MustCompile(`alertname: ` + name + `, exp_alerts: \[\]`).Match(tested)
		if !fires || !silent {
			t.Errorf("%s is tested firing: %v, and not firing: %v", e.of, fires, silent)
		}
	}
}

// program is a program of Debian's package prometheus.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		testbed.Lacks(t, name+" (apt-get install prometheus)")
	}
	return path
}
