package all_test

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

// parameter is a row of docs/url-parameters.md.
type parameter struct{ name, kind, meaning string }

var (
	quoted = regexp.MustCompile("`([^`]+)`")
	row    = regexp.MustCompile("(?m)^\\| `([^`]+)` \\| ([^|]*) \\| [^|]* \\| ([^|]*) \\|$")
	usual  = regexp.MustCompile(`(?m)^Common: (.*)\.$`)
	passed = regexp.MustCompile(`(?m)^Passed on to [\w-]+ \(([^)]*)\): (.*)\.$`)
	known  = regexp.MustCompile(`unknown parameter "no_such" \(known: ([^)]*)\)`)
)

// page reads the tables, by scheme.
func page(t *testing.T) map[string][]parameter {
	t.Helper()
	text, err := os.ReadFile("../../docs/url-parameters.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(text), "\n## ")[1:]
	common := rows(sections[0])
	tables := make(map[string][]parameter)
	for _, section := range sections[1:] {
		_, rest, _ := strings.Cut(section, "Schemes: ")
		schemes, rest, _ := strings.Cut(rest, "\n")
		ps := rows(rest)
		for _, p := range common {
			if isCommon(p.name, usual.FindString(rest)) && !slices.ContainsFunc(ps, func(own parameter) bool { return own.name == p.name }) {
				ps = append(ps, p)
			}
		}
		for _, m := range passed.FindAllStringSubmatch(rest, -1) {
			for _, name := range quoted.FindAllStringSubmatch(m[2], -1) {
				ps = append(ps, parameter{name: name[1], kind: m[1]})
			}
		}
		for _, m := range quoted.FindAllStringSubmatch(schemes, -1) {
			tables[m[1]] = ps
		}
	}
	return tables
}

// rows are the rows of the tables in a section.
func rows(section string) (ps []parameter) {
	for _, m := range row.FindAllStringSubmatch(section, -1) {
		ps = append(ps, parameter{m[1], m[2], m[3]})
	}
	return ps
}

// isCommon tells whether a store's list of common parameters has one of them. Those of TLS are
// named together.
func isCommon(name, list string) bool {
	switch name {
	case "tls", "ca", "cert", "key", "server_name", "insecure_skip_verify":
		return strings.Contains(list, "TLS")
	}
	return strings.Contains(list, "`"+name+"`")
}

// in tells whether a parameter is one of the scheme, and not of others that share
// its table.
func (p parameter) in(scheme string) bool {
	rest, only := strings.CutSuffix(p.meaning, " only")
	return !only || strings.HasSuffix(rest, "`"+scheme+"`")
}

// urlOf is a URL of a store that is never reached.
func urlOf(scheme, query string) string {
	where := map[string]string{
		"sqlite": "./none/locks.db", "redlock": "h1,h2,h3", "redis+sentinel": "h/name", "mysql": "u@h/db", "postgres": "u@h/db",
		"all": "(memory://)", "tokenbase": "(memory://)", "fallback": "(memory://)(memory://)",
	}
	at, ok := where[scheme]
	if !ok {
		at = "h"
	}
	if scheme == "tokenbase" && !strings.Contains(query, "n=") {
		query += "&n=1"
	}
	return scheme + "://" + at + "?" + query
}

// TestParametersPage: the page has every scheme and every parameter that there is,
// and none besides.
func TestParametersPage(t *testing.T) {
	tables := page(t)
	if got := slices.Sorted(maps.Keys(tables)); !slices.Equal(got, driver.Schemes()) {
		t.Errorf("the page has the schemes %q, want %q", got, driver.Schemes())
	}
	for scheme, ps := range tables {
		_, err := locker.Open(t.Context(), urlOf(scheme, "no_such=1"))
		if err == nil {
			t.Errorf("%s knows no_such", scheme)
			continue
		}
		m := known.FindStringSubmatch(err.Error())
		if m == nil {
			t.Errorf("%s: %v", scheme, err)
			continue
		}
		var names []string
		for _, p := range ps {
			if p.in(scheme) {
				names = append(names, p.name)
			}
		}
		slices.Sort(names)
		if want := strings.Split(m[1], ", "); !slices.Equal(names, want) {
			t.Errorf("the page has for %s the parameters\n%q, want\n%q", scheme, names, want)
		}
	}
}

// TestWrongValues: a value that makes no sense is refused when the URL is opened,
// with the parameter's name.
func TestWrongValues(t *testing.T) {
	wrong := map[string][]string{
		"duration":   {"soon", "0", "-1s", ""},
		"number":     {"many", "-1", ""},
		"true/false": {"perhaps", ""},
		"file":       {"/does/not/exist"},
		"text":       nil,
	}
	tried := 0
	for scheme, ps := range page(t) {
		for _, p := range ps {
			values, ok := wrong[p.kind]
			if !ok {
				t.Errorf("%s: a value of %s is %q", p.name, scheme, p.kind)
			}
			for _, v := range values {
				query := p.name + "=" + v
				switch p.name {
				case "ca", "cert", "key":
					query += "&tls=true"
				}
				l, err := locker.Open(t.Context(), urlOf(scheme, query))
				if err == nil {
					_ = l.Close()
				}
				if p.in(scheme) && (err == nil || !strings.Contains(err.Error(), p.name)) {
					t.Errorf("%s: %s: %v, want an error that names the parameter", scheme, query, err)
				}
				tried++
			}
		}
	}
	if tried < 300 {
		t.Errorf("tried %d values: the page is not read", tried)
	}
}
