package command_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/command"
)

func TestInspect(t *testing.T) {
	onRedisAndEtcd(t, func(t *testing.T, url string) {
		c := client(t, url)
		k := hold(t, c, "order:42", locker.WithOwner("web-1"), locker.WithNote("ship it"))
		wait(t, c, "order:42", locker.WithOwner("web-2"), locker.Limit(3))

		r := on(t, url, "inspect", "order:42").Run()
		has(t, r, r.Out, "order:42: 1 holder, 1 waiter\n", "web-1", "exclusive", "ship it", fmt.Sprint(k.Token()), "web-2", "1 of 3")
		if r.Code != 0 || strings.Index(r.Out, "holds") > strings.Index(r.Out, "waits") {
			t.Error(r)
		}

		r = on(t, url, "inspect", "--json", "order:42").Run()
		q := decode[queueLine](t, r.Out)[0]
		if q.Name != "order:42" || q.Holders != 1 || q.Waiters != 1 || len(q.Tickets) != 2 {
			t.Fatal(r)
		}
		holder, waiter := q.Tickets[0], q.Tickets[1]
		since, err := time.Parse(time.RFC3339, holder.Since)
		if err != nil || time.Since(since) > time.Minute || holder.Age < 0 || holder.Age > 60 ||
			holder.Token != fmt.Sprint(k.Token()) || !holder.Held || holder.Owner != "web-1" || holder.Note != "ship it" ||
			holder.Remains <= 0 || holder.Remains > 60 || waiter.Held || !waiter.Shared || waiter.Limit != 3 {
			t.Error(r)
		}
	})
}

func TestInspectFree(t *testing.T) {
	onRedisAndEtcd(t, func(t *testing.T, url string) {
		if r := on(t, url, "inspect", "nobody's").Run(); r.Code != 0 || r.Out != "nobody's is free: nobody holds it or waits for it\n" {
			t.Error(r)
		}
		r := on(t, url, "inspect", "--json", "nobody's").Run()
		if r.Code != 0 || r.Out != `{"name":"nobody's","holders":0,"waiters":0,"tickets":[]}`+"\n" {
			t.Error(r)
		}
	})
}

func TestInspectNoName(t *testing.T) {
	onRedisAndEtcd(t, func(t *testing.T, url string) {
		for _, args := range [][]string{{""}, {"\xff"}, {strings.Repeat("x", 513)}, {}, {"a", "b"}} {
			if r := on(t, url, append([]string{"inspect"}, args...)...).Run(); r.Code != command.ExitUsage || r.Out != "" {
				t.Error(r)
			}
		}
	})
}

// TestEscapes is about names, owners and notes that would drive a terminal.
func TestEscapes(t *testing.T) {
	onRedisAndEtcd(t, func(t *testing.T, url string) {
		c := client(t, url)
		hold(t, c, evil, locker.WithOwner(evil), locker.WithNote(evil))
		for _, args := range [][]string{{"inspect", evil}, {"list"}, {"list", evil}, {"break", evil, "1", "--yes"}, {"break", evil}} {
			r := on(t, url, args...).Run()
			harmless(t, r.Out)
			harmless(t, r.ErrOut)
			has(t, r, r.Out+r.ErrOut, `\x1b[2J\x1b]0;owned`)
		}
		w := on(t, url, "watch").Start()
		harmless(t, w.WaitOut("name"))
		q := decode[queueLine](t, on(t, url, "list", "--json").Run().Out)
		if len(q) != 1 || q[0].Name != evil || q[0].Tickets[0].Note != evil {
			t.Errorf("JSON has %+v", q)
		}
		r := on(t, url, "break", "--yes", evil).Run()
		harmless(t, r.Out)
		if r.Code != 0 {
			t.Error(r)
		}
	})
}

func TestList(t *testing.T) {
	onRedisAndEtcd(t, func(t *testing.T, url string) {
		if r := on(t, url, "list").Run(); r.Code != 0 || r.Out != "" || r.ErrOut != "nobody holds a lock or waits for one\n" {
			t.Error(r)
		}
		c := client(t, url)
		hold(t, c, "order:1", locker.WithOwner("a"))
		hold(t, c, "order:2", locker.Shared(), locker.WithOwner("b"))
		hold(t, c, "order:2", locker.Shared(), locker.WithOwner("c"))
		hold(t, c, "stock", locker.WithOwner("d"))
		wait(t, c, "stock")

		r := on(t, url, "list").Run()
		lines := strings.Split(r.Out, "\n")
		if r.Code != 0 || len(lines) != 5 {
			t.Fatal(r)
		}
		for i, want := range []string{"NAME HOLDER HELD LEASE WAITERS LONGEST NOTE", "order:1 a", "order:2 b +1", "stock d"} {
			if !strings.HasPrefix(strings.Join(strings.Fields(lines[i]), " "), want) {
				t.Errorf("line %d is %q, want %s", i+1, lines[i], want)
			}
		}
		qs := decode[queueLine](t, on(t, url, "list", "order:", "--json").Run().Out)
		if len(qs) != 2 || qs[0].Name != "order:1" || qs[1].Holders != 2 {
			t.Errorf("list order: --json: %+v", qs)
		}
		sorted := decode[queueLine](t, on(t, url, "list", "--sort-by", "waiters", "--json").Run().Out)
		if len(sorted) != 3 || sorted[0].Name != "stock" || sorted[1].Name != "order:1" {
			t.Errorf("list --sort-by waiters: %+v", sorted)
		}
		if r := on(t, url, "list", "--sort-by", "age").Run(); r.Code != 64 || !strings.Contains(r.ErrOut, "want name, waiters, longest or held") {
			t.Error(r)
		}
		if r := on(t, url, "list", "nothing", "--json").Run(); r.Code != 0 || r.Out != "" {
			t.Error(r)
		}
		if r := on(t, url, "list", "nothing").Run(); r.Code != 0 || r.Out != "" || r.ErrOut != "nobody holds or waits for a lock whose name begins with nothing\n" {
			t.Error(r)
		}
	})
}

// TestListBrokenPipe is locker list | true.
func TestListBrokenPipe(t *testing.T) {
	onRedisAndEtcd(t, func(t *testing.T, url string) {
		hold(t, client(t, url), "a")
		for _, args := range [][]string{{"list"}, {"list", "--json"}, {"inspect", "a"}, {"watch"}, {"watch", "--json"}} {
			cmd := on(t, url, args...)
			nobodyReads(t, cmd)
			if r := cmd.Run(); r.Code != 128+13 || r.ErrOut != "" { // SIGPIPE, as every filter ends
				t.Error(r)
			}
		}
	})
}

// TestNoStore is the wrong uses that all verbs have in common.
func TestNoStore(t *testing.T) {
	t.Parallel()
	diary := filepath.Join(t.TempDir(), "diary")
	if err := os.WriteFile(diary, []byte(strings.Repeat("My diary. ", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, verb := range [][]string{
		{"inspect", "a"},
		{"run", "a", "--", "true"},
		{"list"},
		{"watch"},
		{"break", "a", "--yes"},
		{"ping"},
		{"conformance"},
		{"bench"},
	} {
		for url, code := range map[string]int{
			"nonsense://localhost":             command.ExitConfig,
			"redis://user:s3cret@localhost:x":  command.ExitConfig,
			"redis://u:s3cret@localhost/?no=1": command.ExitConfig,
			"sqlite://" + diary:                command.ExitConfig, // it is no database
			"redis://u:s3cret@127.0.0.1:1":     command.ExitUnavailable,
		} {
			t.Run(verb[0]+" "+url[:12], func(t *testing.T) {
				t.Parallel()
				r := on(t, url, verb...).Run()
				if r.Code != code || strings.Contains(r.Out+r.ErrOut, "s3cret") || !strings.Contains(r.ErrOut, "   try: ") {
					t.Error(r)
				}
			})
		}
	}
}
