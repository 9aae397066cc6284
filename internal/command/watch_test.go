package command_test

import (
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/command"
	"github.com/lockerproject/locker/internal/commandtest"
	"github.com/lockerproject/locker/internal/testbed"
)

const often = "--interval=100ms"

func TestWatchLines(t *testing.T) {
	onRedisAndEtcd(t, func(t *testing.T, url string) {
		c := client(t, url)
		k := hold(t, c, "order:1", locker.WithOwner("web-1"))
		hold(t, c, "stock", locker.WithOwner("web-2"))
		w := on(t, url, "watch", "order:", often).Start()
		w.WaitOut("  order:1  held by web-1 (token ")
		wait(t, c, "order:1", locker.WithOwner("web-3"), locker.WithWait(time.Minute))
		w.WaitOut(", 1 waiter\n")
		if err := k.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.WaitOut("  order:1  held by web-3 (token ")
		if err := c.Break(t.Context(), "order:1", queue(t, c, "order:1")[0].Token); err != nil {
			t.Fatal(err)
		}
		w.WaitOut("  order:1  free\n")
		w.Signal(os.Interrupt)
		r := w.Wait()
		if r.Code != 128+2 || r.ErrOut != "" || strings.Contains(r.Out, "stock") || !regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d  order:1  free$`).MatchString(r.Out) {
			t.Error(r)
		}
		harmless(t, r.Out)
	})
}

func TestWatchJSON(t *testing.T) {
	onRedisAndEtcd(t, func(t *testing.T, url string) {
		c := client(t, url)
		k := hold(t, c, "a", locker.WithOwner("web-1"))
		w := on(t, url, "watch", often, "--json").Start()
		w.WaitOut("\n")
		time.Sleep(300 * time.Millisecond) // readings without a change print nothing
		if err := k.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.WaitOut(`"tickets":[]}`)
		w.Signal(syscall.SIGTERM)
		r := w.Wait()
		lines := decode[queueLine](t, r.Out)
		if r.Code != 128+15 || len(lines) != 2 || lines[0].Name != "a" || lines[0].Tickets[0].Owner != "web-1" || lines[1].Holders != 0 {
			t.Error(r)
		}
		if _, err := time.Parse(time.RFC3339, lines[0].Time); err != nil {
			t.Error(err, r)
		}
	})
}

func TestWatchLinesOutage(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t, testbed.Faults())
	hold(t, client(t, srv.URL()), "a", locker.WithOwner("before"))
	w := on(t, srv.URL(), "watch", often).Start()
	w.WaitOut("held by before")
	srv.Kill()
	w.WaitErr(" on redis") // the list, or the queue that is inspected after it
	srv.Start()
	w.WaitErr("locker: the store answers again\n")
	hold(t, client(t, srv.URL()), "b", locker.WithOwner("after"))
	w.WaitOut("  b  held by after")
	w.Signal(os.Interrupt)
	if r := w.Wait(); strings.Count(r.ErrOut, "\n") != 2 || strings.Contains(r.ErrOut, "locker: locker:") { // one line when it goes, one when it is back
		t.Error(r)
	}
}

// With --json messages that are no changes are JSON too, on standard error.
func TestWatchJSONOutage(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t, testbed.Faults())
	hold(t, client(t, srv.URL()), "a")
	w := on(t, srv.URL(), "watch", often, "--json").Start()
	w.WaitOut("\n")
	srv.Kill()
	w.WaitErr("\n")
	w.Signal(os.Interrupt)
	r := w.Wait()
	if said := decode[struct{ Time, Message string }](t, r.ErrOut); len(said) != 1 || !strings.Contains(said[0].Message, " on redis") {
		t.Error(r)
	}
}

// On a terminal too there are lines, in which no name can do harm.
func TestWatchOnTerminal(t *testing.T) {
	onRedisAndEtcd(t, func(t *testing.T, url string) {
		c := client(t, url)
		term := commandtest.NewTerminal(t)
		w := term.Attach(on(t, url, "watch", often).With("TERM=xterm-256color")).Start()
		term.WaitFor("nobody holds a lock or waits for one")
		hold(t, c, evil, locker.WithOwner(evil))
		term.WaitFor(`held by "\x1b[2J`)
		term.Type("\x03") // Ctrl-C
		if r := w.Wait(); r.Code != 128+2 {
			t.Error(r, term.Shown())
		}
		if shown := term.Shown(); strings.Contains(shown, "\x1b]0;owned") || strings.Contains(shown, "\u009b") {
			t.Errorf("a name was obeyed: %q", shown)
		}
	})
}

func TestWatchWrongUse(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--interval", "1ms"}, {"--interval", "x"}, {"a", "b"}} {
		if r := on(t, "redis://127.0.0.1:1", append([]string{"watch"}, args...)...).Run(); r.Code != command.ExitUsage {
			t.Error(r)
		}
	}
}
