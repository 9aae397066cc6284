package command_test

import (
	"bufio"
	"crypto/rand"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/commandtest"
	"github.com/lockerproject/locker/internal/testbed"
)

// evil is a name, or an owner, that would drive a terminal if it were printed.
const evil = "\x1b[2J\x1b]0;owned\a\u009b31m\u202ename"

// ownSpace is the URL of a part of a store that no other test uses.
func ownSpace(url string) string {
	separator := "?"
	if strings.Contains(url, "?") {
		separator = "&"
	}
	return url + separator + "prefix=t" + strings.ToLower(rand.Text()[:12])
}

// onRedisAndEtcd runs a test on both, each in a space of its own.
func onRedisAndEtcd(t *testing.T, test func(t *testing.T, url string)) {
	t.Helper()
	t.Parallel()
	for name, server := range map[string]func(testing.TB) *testbed.Server{"redis": testbed.SharedRedis, "etcd": testbed.SharedEtcd} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, ownSpace(server(t).URL()))
		})
	}
}

// client is a Locker of this process on a store.
func client(t *testing.T, url string) *locker.Client {
	t.Helper()
	c, err := locker.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// hold takes a lock.
func hold(t *testing.T, c *locker.Client, name string, opts ...locker.Option) *locker.Lock {
	t.Helper()
	k, err := c.Acquire(t.Context(), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// wait queues for a lock that is held, and returns when the ticket is queued.
func wait(t *testing.T, c *locker.Client, name string, opts ...locker.Option) {
	t.Helper()
	before := queue(t, c, name)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if k, err := c.Acquire(t.Context(), name, opts...); err == nil {
			<-t.Context().Done()
			_ = k.Release(t.Context())
		}
	}()
	t.Cleanup(func() { <-done })
	commandtest.Eventually(t, "a waiter is queued", func() bool { return len(queue(t, c, name)) > len(before) })
}

func queue(t *testing.T, c *locker.Client, name string) []locker.Ticket {
	t.Helper()
	q, err := c.Inspect(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	return q.Tickets
}

// on prepares a run of the program on a store.
func on(t *testing.T, url string, args ...string) *commandtest.Cmd {
	t.Helper()
	return commandtest.Command(t, args...).With("LOCKER_URL=" + url)
}

// decode reads what --json has printed, a value a line.
func decode[T any](t *testing.T, text string) (all []T) {
	t.Helper()
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var v T
		d := json.NewDecoder(strings.NewReader(lines.Text()))
		d.DisallowUnknownFields()
		if err := d.Decode(&v); err != nil {
			t.Fatalf("%v in %q", err, lines.Text())
		}
		all = append(all, v)
	}
	return all
}

// The fields of --json, as they are documented.
type (
	ticketLine struct {
		Token   string  `json:"token"`
		Held    bool    `json:"held"`
		Owner   string  `json:"owner"`
		Note    string  `json:"note"`
		Shared  bool    `json:"shared"`
		Limit   int     `json:"limit"`
		Since   string  `json:"since"`
		Age     float64 `json:"age_seconds"`
		Remains float64 `json:"remaining_seconds"`
	}
	queueLine struct {
		Time    string       `json:"time"`
		Name    string       `json:"name"`
		Holders int          `json:"holders"`
		Waiters int          `json:"waiters"`
		Tickets []ticketLine `json:"tickets"`
	}
)

// harmless fails if the program has printed characters that control a terminal.
func harmless(t *testing.T, text string) {
	t.Helper()
	if i := strings.IndexAny(text, "\x1b\a\r\u009b\u202e"); i >= 0 {
		t.Errorf("the output holds control characters: %q", text[i:])
	}
}

// has fails unless a text contains all parts.
func has(t *testing.T, r commandtest.Result, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("want %q in %v", p, r)
		}
	}
}

// nobodyReads makes the standard output of c a pipe that nobody reads.
func nobodyReads(t *testing.T, c *commandtest.Cmd) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	r.Close()
	c.Stdout = w
}
