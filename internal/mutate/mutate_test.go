package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const subject = `package p

import "errors"

// Most returns the larger of two, and fails if both are negative.
func Most(a, b int) (n int, err error) {
	if a < 0 && b < 0 {
		return 0, errors.New("both are negative")
	}
	n = a
	func() {
		if b > a {
			n = b
		}
	}()
	return n, nil
}

func unused() bool { return true }
`

const incomplete = `package p

import "testing"

func TestMost(t *testing.T) {
	if n, err := Most(1, 2); n != 2 || err != nil {
		t.Error(n, err)
	}
	if _, err := Most(-1, -1); err == nil {
		t.Error("no error")
	}
}
`

// survivors are the mutants of a package that its tests do not notice.
func survivors(t *testing.T, names []string, texts map[string]string) (got []string) {
	t.Helper()
	dir, out := t.TempDir(), t.TempDir()
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := &instrumenter{dropped: make(map[int]bool)}
	overlay, err := in.overlay(dir, out, names)
	if err != nil {
		t.Fatal(err)
	}
	all, err := suites(overlay, out, dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range in.mutants {
		if what := all.verdict(m.id); what != "" {
			got = append(got, what+" "+m.at+" "+m.kind+" "+m.text)
		}
	}
	return got
}

// The survivors are what the tests do not show: that one negative number is no error, and that the
// first may be the larger one.
func TestSurvivors(t *testing.T) {
	got := survivors(t, nil, map[string]string{"go.mod": "module p\n", "p.go": subject, "p_test.go": incomplete})
	want := []string{
		"survives p.go:7 true a < 0",
		"unseen p.go:7 true b < 0",
		"survives p.go:10 omit n = a",
		"unseen p.go:12 true b > a",
		"unseen p.go:19 omit return true",
	}
	if !slices.Equal(got, want) {
		t.Errorf("survivors:\n%q\nwant\n%q", got, want)
	}
}

const luaSubject = `-- least returns the least of three.
local a, b, c = ...
local n = math.min(a, b)
if c and c < n then return c end
local name = "if"
return n -- or nil
`

const luaEmbeds = `package p

import "embed"

//go:embed p.lua
var files embed.FS

func text() string {
	b, _ := files.ReadFile("p.lua")
	return string(b)
}
`

const luaTests = `package p

import (
	"strings"
	"testing"
)

// It stands for a test that runs the script: the mutants that it notices are those that it looks for.
func TestText(t *testing.T) {
	for _, part := range []string{"math.min(a, b)", "c and", "return n --"} {
		if !strings.Contains(text(), part) {
			t.Error(part)
		}
	}
}
`

// A Lua text that a package embeds is mutated, too.
func TestLuaSurvivors(t *testing.T) {
	got := survivors(t, []string{"p.lua"}, map[string]string{
		"go.mod": "module p\n", "p.lua": luaSubject, "p.go": luaEmbeds, "p_test.go": luaTests,
	})
	want := []string{
		"survives p.lua:4 omit return c",
		"survives p.lua:4 edge if c and c <= n then return c end",
	}
	if !slices.Equal(got, want) {
		t.Errorf("survivors:\n%q\nwant\n%q", got, want)
	}
}
