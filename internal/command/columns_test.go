//go:build unix

package command_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/command"
	"github.com/lockerproject/locker/internal/commandtest"
)

// The columns are those that were asked for, in that order, whatever the order of the rows and
// the width of the terminal. JSON has them all.
func TestListColumns(t *testing.T) {
	t.Parallel()
	_, url := ownFile(t)
	c := client(t, url)
	long := strings.Repeat("x", 300)
	k := hold(t, c, long, locker.WithOwner("me"), locker.WithNote("why"))
	hold(t, c, "pair", locker.WithOwner("one"), locker.Shared())
	hold(t, c, "pair", locker.WithOwner("two"), locker.Shared())
	wait(t, c, "pair", locker.WithOwner("three"))

	r := on(t, url, "list", "--columns", "waiters,Name, holders", "--sort-by", "waiters").Run()
	if want := "WAITERS  NAME  HOLDERS\n1        pair  2\n0        " + long + "  1\n"; r.Code != 0 || r.Out != want {
		t.Errorf("want\n%s%v", want, r)
	}
	r = on(t, url, "list", "x", "--columns=note,token,holder").Run()
	if want := fmt.Sprintf("NOTE  TOKEN  HOLDER\nwhy   %-5d  me\n", k.Token()); r.Code != 0 || r.Out != want {
		t.Errorf("want\n%s%v", want, r)
	}
	plain := on(t, url, "list", "--json", "--columns", "note").Run()
	if lines := decode[queueLine](t, plain.Out); plain.Code != 0 || len(lines) != 2 || len(lines[0].Tickets)+len(lines[1].Tickets) != 4 {
		t.Error(plain)
	}
	for _, wide := range []bool{false, true} {
		term := commandtest.NewTerminal(t)
		if r := term.Attach(on(t, url, "list", "--columns", "name,lease", fmt.Sprintf("--wide=%v", wide))).Run(); r.Code != 0 {
			t.Error(r)
		}
		shown := term.WaitFor("xxx")
		if cut := regexp.MustCompile(`(?m)^x+…  \S+s`).MatchString(shown); cut == wide || strings.Contains(shown, long) != wide {
			t.Errorf("wide %v:\n%s", wide, shown)
		}
	}
}

func TestListUnknownColumn(t *testing.T) {
	t.Parallel()
	_, url := ownFile(t)
	for _, columns := range []string{"name,pid", "", "name,", "name holder"} {
		r := on(t, url, "list", "--columns="+columns).Run()
		if r.Code != command.ExitUsage || r.Out != "" || !strings.Contains(r.ErrOut, "want some of name,holder,held,lease,waiters,longest,note,holders,token") {
			t.Errorf("%q: %v", columns, r)
		}
	}
}
