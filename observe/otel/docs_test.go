package lockerotel

import (
	"context"
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
)

// row is one metric, as the page documents it or as the code records it.
type row struct{ prometheus, kind, unit, attributes string }

var (
	metricRow = regexp.MustCompile("(?m)^\\| `(locker\\.[a-z_.]+)` \\| `([a-z_]+)` \\| ([a-z -]+) \\| `([^`]+)` \\| (.*?) ?\\|")
	errorRow  = regexp.MustCompile("(?m)^\\| ((?:`[a-z_A-Z]+`(?:, )?)+) \\| [^`|]+ \\|$")
	quoted    = regexp.MustCompile("`([^`]+)`")
)

func page(t *testing.T) string {
	t.Helper()
	raw, err := os.ReadFile("../../docs/observability.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// The table of metrics in docs/observability.md is what the code records.
func TestDocsHaveAllMetrics(t *testing.T) {
	documented := map[string]row{}
	for _, m := range metricRow.FindAllStringSubmatch(page(t), -1) {
		attributes := strings.Split(strings.ReplaceAll(m[5], "`", ""), ", ")
		slices.Sort(attributes)
		documented[m[1]] = row{m[2], m[3], m[4], strings.Join(attributes, " ")}
	}
	recorded := recordedRows(t)
	names := slices.AppendSeq(slices.Collect(maps.Keys(documented)), maps.Keys(recorded))
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if documented[name] != recorded[name] {
			t.Errorf("%s is\n%+v in the code and\n%+v in the page", name, recorded[name], documented[name])
		}
	}
}

// recordedRows records every metric, and returns the rows.
func recordedRows(t *testing.T) map[string]row {
	t.Helper()
	m := newTelemetry()
	o := newObserver(m.opts)
	l := locker.New(memory.New(), o.attach)
	defer l.Close()
	if _, err := ObserveQueues(l, []string{"a"}, m.opts...); err != nil {
		t.Fatal(err)
	}
	for _, e := range []locker.Event{
		{ID: 1, Kind: locker.EventWaiting},
		{ID: 1, Kind: locker.EventRejoined, Err: locker.ErrLost},
		{ID: 1, Kind: locker.EventAcquired, Waited: true, Degraded: locker.ErrUnavailable},
		{ID: 1, Kind: locker.EventRenewFailed, Err: locker.ErrUnavailable},
		{ID: 1, Kind: locker.EventLost, Err: locker.ErrLost},
		{ID: 2, Kind: locker.EventFailed, Err: locker.ErrNotAcquired},
	} {
		o.observe(context.Background(), e)
	}
	rows := map[string]row{}
	for _, metric := range m.collect(t) {
		r := row{unit: metric.Unit, prometheus: strings.ReplaceAll(metric.Name, ".", "_")}
		switch data := metric.Data.(type) {
		case metricdata.Histogram[float64]:
			r.kind = "histogram"
			r.prometheus += "_seconds"
		case metricdata.Gauge[int64]:
			r.kind = "gauge"
		case metricdata.Sum[int64]:
			r.kind = "up-down counter"
			if data.IsMonotonic {
				r.kind = "counter"
				r.prometheus += "_total"
			}
		}
		keys := map[string]bool{}
		for _, p := range points(metric) {
			for _, kv := range p.ToSlice() {
				if kv.Key != keyStore && kv.Key != keyMode {
					keys[string(kv.Key)] = true
				}
			}
		}
		r.attributes = strings.Join(slices.Sorted(maps.Keys(keys)), " ")
		rows[metric.Name] = r
	}
	return rows
}

// The page and the package's documentation list the error types of the code.
func TestDocsHaveAllErrorTypes(t *testing.T) {
	known := []string{kindOf(locker.Event{Err: errors.New("any")}), lossExpired, lossRemoved}
	for _, k := range kinds {
		known = append(known, k.kind)
	}
	slices.Sort(known)
	var documented []string
	for _, m := range errorRow.FindAllStringSubmatch(page(t), -1) {
		for _, q := range quoted.FindAllStringSubmatch(m[1], -1) {
			if q[1] != "error.type" {
				documented = append(documented, q[1])
			}
		}
	}
	slices.Sort(documented)
	if !slices.Equal(known, documented) {
		t.Errorf("the error types are\n%v in the code and\n%v in the page", known, documented)
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(strings.ReplaceAll(string(doc), "\n// ", " "), "error.type is one of ")
	list, _, _ = strings.Cut(list, " for the store's")
	for _, k := range known {
		if !strings.Contains(list, k) {
			t.Errorf("doc.go does not list %s: %s", k, list)
		}
	}
}
