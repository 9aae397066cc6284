package command_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/command"
	"github.com/lockerproject/locker/internal/commandtest"
)

func TestBreak(t *testing.T) {
	onRedisAndEtcd(t, func(t *testing.T, url string) {
		c := client(t, url)
		k := hold(t, c, "a", locker.WithOwner("stuck"))
		wait(t, c, "a", locker.WithOwner("next"))
		r := on(t, url, "break", "--yes", "a").Run()
		has(t, r, r.Out, "a: 1 ticket removed\n", "stuck", fmt.Sprint(k.Token()))
		if r.Code != 0 || strings.Contains(r.Out, "next") {
			t.Error(r)
		}
		<-k.Done()
		if err := k.Err(); !errors.Is(err, locker.ErrLost) {
			t.Errorf("the holder has %v", err)
		}
		commandtest.Eventually(t, "the next holds", func() bool {
			q := queue(t, c, "a")
			return len(q) == 1 && q[0].Held && q[0].Owner == "next"
		})
		// An old token removes nothing from the present holder.
		r = on(t, url, "break", "--yes", "a", fmt.Sprint(k.Token())).Run()
		if r.Code != command.ExitFailure || r.Out != "" || !strings.Contains(r.ErrOut, "no ticket with token") {
			t.Error(r)
		}
	})
}

func TestBreakWaiterAndReaders(t *testing.T) {
	onRedisAndEtcd(t, func(t *testing.T, url string) {
		c := client(t, url)
		hold(t, c, "a", locker.Shared(), locker.WithOwner("reader-1"))
		hold(t, c, "a", locker.Shared(), locker.WithOwner("reader-2"))
		wait(t, c, "a", locker.WithOwner("writer"))
		waiter := queue(t, c, "a")[2]
		r := on(t, url, "break", "--json", "--yes", "a", fmt.Sprint(waiter.Token)).Run()
		type broken struct {
			Name   string
			Broken []ticketLine
		}
		if b := decode[broken](t, r.Out); r.Code != 0 || len(b) != 1 || b[0].Name != "a" || len(b[0].Broken) != 1 || b[0].Broken[0].Owner != "writer" {
			t.Error(r)
		}
		commandtest.Eventually(t, "the waiter queues again, or is gone", func() bool {
			q := queue(t, c, "a")
			return len(q) < 3 || q[2].Token != waiter.Token
		})
		r = on(t, url, "break", "--yes", "a").Run()
		has(t, r, r.Out, "2 tickets removed", "reader-1", "reader-2")
	})
}

func TestBreakWrongUse(t *testing.T) {
	onRedisAndEtcd(t, func(t *testing.T, url string) {
		hold(t, client(t, url), "a")
		for _, c := range []struct {
			code int
			args []string
			want string
		}{
			{command.ExitUsage, []string{"a"}, "standard input is not a terminal"},
			{command.ExitUsage, []string{"a", "--json"}, "standard input is not a terminal"},
			{command.ExitUsage, []string{"a", "0", "--yes"}, `token "0"`},
			{command.ExitUsage, []string{"--yes"}, "want locker break NAME [TOKEN]"},
			{command.ExitUsage, []string{"--yes", ""}, "invalid lock name"},
			{command.ExitFailure, []string{"--yes", "free"}, `nobody holds "free"`},
			{command.ExitFailure, []string{"--yes", "a", "1"}, "no ticket with token 1"},
		} {
			r := on(t, url, append([]string{"break"}, c.args...)...).Run()
			if r.Code != c.code || r.Out != "" || !strings.Contains(r.ErrOut, c.want) {
				t.Errorf("want %q, %v", c.want, r)
			}
		}
		if q := queue(t, client(t, url), "a"); len(q) != 1 {
			t.Errorf("the queue is %v", q)
		}
	})
}

// TestBreakAsks is about the question, on a terminal.
func TestBreakAsks(t *testing.T) {
	onRedisAndEtcd(t, func(t *testing.T, url string) {
		c := client(t, url)
		k := hold(t, c, "a", locker.WithOwner("stuck"))
		for _, answer := range []struct {
			keys string
			code int
		}{
			{"n\r", command.ExitFailure},
			{"\r", command.ExitFailure},
			{"\x04", command.ExitFailure}, // the end of input
			{"\x03", 128 + 2},             // Ctrl-C
			{"yes\r", 0},
		} {
			if err := k.Err(); err != nil {
				t.Fatalf("before %q: %v", answer.keys, err)
			}
			term := commandtest.NewTerminal(t)
			cmd := term.Attach(on(t, url, "break", "a")).Start()
			if shown := term.WaitFor("Remove 1 ticket from "); !strings.Contains(shown, "stuck") {
				t.Errorf("who would lose it is not shown: %q", shown)
			}
			term.Type(answer.keys)
			if r := cmd.Wait(); r.Code != answer.code {
				t.Errorf("%q: %v\n%s", answer.keys, r, term.Shown())
			}
		}
		<-k.Done()
		if q := queue(t, c, "a"); len(q) != 0 {
			t.Errorf("the queue is %v", q)
		}
	})
}
