//go:build unix

package command_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/command"
	"github.com/lockerproject/locker/internal/commandtest"
)

type brokenLine struct {
	Name         string
	Broken, Gone []ticketLine
}

// Several locks are broken at once; one that nobody holds keeps none of the others.
func TestBreakMany(t *testing.T) {
	t.Parallel()
	_, url := ownFile(t)
	c := client(t, url)
	for _, name := range []string{"a", "b", "c", "42"} {
		hold(t, c, name, locker.WithOwner("of-"+name))
	}
	for _, wrong := range []struct {
		args, want string
	}{
		{"a b", "standard input is not a terminal"},
		{"--yes a b 7", "7 is a number: a token is for one lock"},
		{"--yes a 7 b", "7 is a number: a token is for one lock"},
		{"--yes a 99999999999999999999", `token "99999999999999999999"`},
	} {
		r := on(t, url, append([]string{"break"}, strings.Fields(wrong.args)...)...).Run()
		if r.Code != command.ExitUsage || r.Out != "" || !strings.Contains(r.ErrOut, wrong.want) {
			t.Errorf("want %q, %v", wrong.want, r)
		}
	}
	if r := on(t, url, "break", "--yes", "x", "y").Run(); r.Code != command.ExitFailure || r.Out != "" || !strings.Contains(r.ErrOut, `nobody holds "x" or waits for it; nobody holds "y"`) {
		t.Error(r)
	}
	r := on(t, url, "break", "--yes", "42", "free", "a", "a").Run()
	has(t, r, r.Out, "NAME", "TOKEN", "of-42", "of-a", "42: 1 ticket removed\na: 1 ticket removed\n")
	has(t, r, r.ErrOut, `nobody holds "free"`)
	if r.Code != command.ExitFailure || strings.Count(r.Out, "of-a") != 1 {
		t.Error(r)
	}
	r = on(t, url, "break", "--yes", "--json", "b", "c").Run()
	if lines := decode[brokenLine](t, r.Out); r.Code != 0 || len(lines) != 2 || lines[1].Name != "c" || lines[1].Broken[0].Owner != "of-c" {
		t.Error(r)
	}
	for _, name := range []string{"a", "b", "c", "42"} {
		if q := queue(t, c, name); len(q) != 0 {
			t.Errorf("%s: the queue is %v", name, q)
		}
	}
}

// The question is asked once, and shows all holders. A lock whose holder changes meanwhile stays
// with the new one, and that is said.
func TestBreakManyAsks(t *testing.T) {
	t.Parallel()
	_, url := ownFile(t)
	c := client(t, url)
	hold(t, c, "a", locker.WithOwner("stuck"))
	old := hold(t, c, "b", locker.WithOwner("old"))
	for _, answer := range []string{"n\r", "y\r"} {
		term := commandtest.NewTerminal(t)
		cmd := term.Attach(on(t, url, "break", "a", "b")).Start()
		shown := term.WaitFor("Remove 2 tickets from 2 locks? [y/N] ")
		if strings.Count(shown, "?") != 1 || !strings.Contains(shown, "stuck") || !strings.Contains(shown, fmt.Sprint(old.Token())) {
			t.Errorf("the question: %q", shown)
		}
		if answer == "y\r" {
			if err := old.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			hold(t, c, "b", locker.WithOwner("new"))
		}
		term.Type(answer)
		if r := cmd.Wait(); r.Code != command.ExitFailure {
			t.Error(r)
		}
		after := strings.ReplaceAll(term.Shown()[len(shown):], "\r", "")
		done := strings.Contains(after, "a: 1 ticket removed\nb: 1 ticket had gone meanwhile\n")
		if done != (answer == "y\r") {
			t.Errorf("after %q: %q", answer, after)
		}
		if q := queue(t, c, "a"); len(q) == 0 != done {
			t.Errorf("after %q the queue of a is %v", answer, q)
		}
	}
	if q := queue(t, c, "b"); len(q) != 1 || q[0].Owner != "new" {
		t.Errorf("the queue of b is %v", q)
	}
}
