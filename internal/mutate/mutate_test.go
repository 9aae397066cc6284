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

// The survivors are what the tests do not show: that one negative number is no error, and that the
// first may be the larger one.
func TestSurvivors(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{"go.mod": "module p\n", "p.go": subject, "p_test.go": incomplete} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in := &instrumenter{dropped: make(map[int]bool)}
	overlay, err := in.overlay(dir, out, nil)
	if err != nil {
		t.Fatal(err)
	}
	all, err := suites(overlay, out, dir, dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range in.mutants {
		if what := all.verdict(m.id); what != "" {
			got = append(got, what+" "+m.at+" "+m.kind+" "+m.text)
		}
	}
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
