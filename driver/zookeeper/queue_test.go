package zookeeper

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestEncode(t *testing.T) {
	names := []string{
		"a", "A", "a ", " a", "a/b", "/a", "a//b", "a\x00", "\x00", ".", "..", "...", ".a", "a.", "a/..", "%", "%2F", "%2f",
		"\u00e9", "e\u0301", "\U0010ffff", "\uf8ff", "\ufff0", "zookeeper", "a_b", "a_x_0000000000", strings.Repeat("\xc3\xa9", 256),
	}
	seen := make(map[string]string)
	for _, name := range names {
		e := encode(name)
		if other, created := seen[e]; created {
			t.Errorf("%q and %q are both %s", name, other, e)
		}
		seen[e] = name
		if strings.ContainsAny(e, "/\x00") || e == "." || e == ".." || strings.ContainsFunc(e, refused) {
			t.Errorf("%q: %q is no name of a node", name, e)
		}
		if back, ok := decode(e); !ok || back != name {
			t.Errorf("%q came back as %q, %v", name, back, ok)
		}
	}
	for _, foreign := range []string{"", "a b", "%", "%2", "%zz", "%61", "%2f", ".a", "a%"} {
		if name, ok := decode(foreign); ok {
			t.Errorf("%q was created for the name %q", foreign, name)
		}
	}
}

// TestEncodeIsFixed: all programs of a protocol version must use the same nodes.
func TestEncodeIsFixed(t *testing.T) {
	for name, want := range map[string]string{
		"plain-_:@+=,~.9Z": "plain-_:@+=,~.9Z",
		".a.":              "%2Ea.",
		"a/b c":            "a%2Fb%20c",
		"!\"#$%&'()*;<>?":  "%21%22%23%24%25%26%27%28%29%2A%3B%3C%3E%3F",
		"[\\]^`{|}\x7f":    "%5B%5C%5D%5E%60%7B%7C%7D%7F",
		"\x00\u00e9":       "%00%C3%A9",
	} {
		if got := encode(name); got != want {
			t.Errorf("%q is encoded as %s, want %s", name, got, want)
		}
	}
}

func FuzzEncode(f *testing.F) {
	f.Add("a/b", "a%2Fb")
	f.Fuzz(func(t *testing.T, a, b string) {
		if a == "" || b == "" {
			return
		}
		if (a == b) != (encode(a) == encode(b)) {
			t.Errorf("%q and %q: %q and %q", a, b, encode(a), encode(b))
		}
		if back, ok := decode(encode(a)); !ok || back != a {
			t.Errorf("%q came back as %q", a, back)
		}
	})
}

func TestParseEntry(t *testing.T) {
	for node, want := range map[string]entry{
		"a-1_x_0000000007":   {id: "a-1", seq: 7},
		"a-1_s_2147483647":   {id: "a-1", shared: true, seq: 2147483647},
		"a-1_s12_0000000000": {id: "a-1", shared: true, limit: 12},
		"a-1_x_-2147483648":  {id: "a-1", seq: -2147483648},
		"a-1_x_-000000005":   {id: "a-1", seq: -5},
	} {
		want.node = node
		if e, ok := parseEntry(node); !ok || e != want {
			t.Errorf("%s: %+v, %v", node, e, ok)
		}
	}
	for _, foreign := range []string{"", "a", "a_x", "a_x_", "_x_1", "a__1", "a_y_1", "a_s0_1", "a_s-1_1", "a_x_99999999999", "_c_0f-lock-1"} {
		if e, ok := parseEntry(foreign); ok {
			t.Errorf("%q was created for %+v", foreign, e)
		}
	}
}

// TestBlocker empties random queues and checks that the one watch of each waiter
// misses nothing: between a reading of the queue and the moment when the ticket can
// be granted, the watched ticket has gone or was granted. It also checks that a
// release of an exclusive lock wakes only the next waiters.
func TestBlocker(t *testing.T) {
	random := testbed.Rand(t)
	for range 3000 {
		v := randomView(random, 2+random.IntN(12))
		type watched struct {
			blocker string // "" for any change
			by      string
		}
		var watches []watched
		for i := range v.entries {
			if v.granted(i) {
				continue
			}
			w := watched{by: v.entries[i].node}
			if b := v.blocker(i); b >= 0 {
				w.blocker = v.entries[b].node
				if b >= i || v.entries[i].shared && v.entries[b].shared && v.granted(b) {
					t.Fatalf("%v: %d waits for %d", v.entries, i, b)
				}
			}
			watches = append(watches, w)
		}
		for len(v.entries) > 1 {
			gone := random.IntN(len(v.entries))
			left := make([]entry, 0, len(v.entries))
			left = append(append(left, v.entries[:gone]...), v.entries[gone+1:]...)
			v = newView(left)
			for _, w := range watches {
				i, b := v.index(w.by), v.index(w.blocker)
				if i < 0 || !v.granted(i) || w.blocker == "" {
					continue
				}
				if b >= 0 && !(v.entries[b].shared && v.granted(b)) {
					t.Fatalf("%v: %d can be granted, and was not woken by %d", v.entries, i, b)
				}
			}
		}
	}
}

// TestGranted checks that the view follows the rule.
func TestGranted(t *testing.T) {
	random := testbed.Rand(t)
	for range 1000 {
		v := randomView(random, 1+random.IntN(8))
		for i, want := range driver.Granted(v.tickets(len(v.entries))) {
			if v.granted(i) != want {
				t.Fatalf("%v: %d: want %v", v.entries, i, want)
			}
		}
	}
}

// TestMarkers: if a ticket waits for the grant of another one, awaited reports that.
func TestMarkers(t *testing.T) {
	random := testbed.Rand(t)
	for range 3000 {
		v := randomView(random, 2+random.IntN(12))
		for i := range v.entries {
			if v.granted(i) {
				continue
			}
			if b := v.blocker(i); b >= 0 && v.entries[i].shared && v.entries[b].shared && !v.awaited(b) {
				t.Fatalf("%v: nobody would tell %d of the turn of %d", v.entries, i, b)
			}
		}
	}
}

func randomView(random *rand.Rand, n int) *view {
	entries := make([]entry, n)
	for i := range entries {
		e := entry{node: fmt.Sprint("n", i), seq: int32(i)}
		if random.IntN(4) > 0 {
			e.shared = true
			e.limit = random.IntN(4)
		}
		entries[i] = e
	}
	random.Shuffle(n, func(i, j int) { entries[i], entries[j] = entries[j], entries[i] })
	return newView(entries)
}

func TestSequential(t *testing.T) {
	for seq, want := range map[int32]bool{0: false, lastSequence: false, lastSequence + 1: true, -1: true, -2147483648: true} {
		if got := (entry{seq: seq}).beyond(); got != want {
			t.Errorf("sequence %d is beyond the last: %v", seq, got)
		}
	}
	v := newView([]entry{
		{node: "3", seq: -2147483648, czxid: 9}, {node: "2", seq: 2147483647, czxid: 8}, {node: "1", seq: lastSequence}, {node: "0", seq: 7},
	})
	for i, e := range v.entries {
		if e.node != fmt.Sprint(i) {
			t.Errorf("order %v", v.entries)
		}
	}
}

func TestAdmits(t *testing.T) {
	v := newView([]entry{{node: "a", shared: true, limit: 2}})
	for _, c := range []struct {
		r    driver.Request
		want bool
	}{
		{r: driver.Request{}}, {driver.Request{Shared: true}, true}, {driver.Request{Shared: true, Limit: 2}, true}, {r: driver.Request{Shared: true, Limit: 1}},
	} {
		if got := v.admits(c.r); got != c.want {
			t.Errorf("%+v: %v", c.r, got)
		}
	}
}

// Many requests that fail in the same way have one error.
func TestOneErrorOfMany(t *testing.T) {
	_, err := each(make([]int, 1000), func(int) (int, error) { return 0, zk.ErrConnectionClosed })
	if err != zk.ErrConnectionClosed { //nolint:errorlint // that error and nothing else
		t.Errorf("got %v", err)
	}
}

// Callers that come when a listing has been sent share the next one, which is sent when that one has ended.
func TestListingIsNotOlder(t *testing.T) {
	t.Parallel()
	ctx, d := inside(t)
	parent := d.parent("x")
	before := &listing{sent: true, done: make(chan struct{}), view: &view{absent: true}}
	d.mu.Lock()
	d.listings[parent] = before
	d.mu.Unlock()
	views, ended := make(chan *view, 2), make(chan error, 2)
	for range 2 {
		waits := make(chan struct{})
		go func() {
			v, err := d.list(noticed{Context: ctx, done: func() { close(waits) }}, parent)
			views <- v
			ended <- err
		}()
		<-waits
	}
	if answered(ended) {
		t.Error("a listing was not sent after the one before")
	}
	enqueue(ctx, t, d, driver.Request{Name: "x", ID: "queued-1", TTL: time.Minute, Renewed: true, Wait: true})
	close(before.done)
	first, second := <-views, <-views
	if err := errors.Join(<-ended, <-ended); err != nil || first != second || len(first.entries) != 1 {
		t.Errorf("views %v and %v, error %v, want one that shows the ticket", first, second, err)
	}
}

// A caller that comes while the answer to a listing is due does not get that one, which may be older than the call. No listing
// is kept after its end.
func TestListingUnderWay(t *testing.T) {
	t.Parallel()
	p := testbed.SharedZookeeper(t).Proxy(t)
	ctx, d := insideAt(t, p.Addr())
	warm(ctx, t, d)
	parent := d.parent("x")
	ended := make(chan error, 2)
	views := make(chan *view, 1)
	until := func(is func() bool) {
		t.Helper()
		for d.mu.Lock(); !is(); d.mu.Lock() {
			d.mu.Unlock()
			if !retry.Sleep(ctx, time.Millisecond, nil) {
				t.Fatal("not in time")
			}
		}
		d.mu.Unlock()
	}
	p.HoldReplies(true)
	go func() {
		_, err := d.list(ctx, parent)
		ended <- err
	}()
	var first *listing
	until(func() bool { first = d.listings[parent]; return first != nil && first.sent })
	go func() {
		v, err := d.list(ctx, parent)
		views <- v
		ended <- err
	}()
	until(func() bool { return d.listings[parent] != first })
	conn, _ := dial(t, testbed.SharedZookeeper(t).Addr())
	_, err := conn.Multi(
		&zk.CreateRequest{Path: parent, Data: []byte{}, Acl: d.acl},
		&zk.CreateRequest{Path: parent + "/queued-1_x_0000000000", Data: []byte{}, Acl: d.acl, Flags: zk.FlagEphemeral})
	if err != nil {
		t.Fatal(err)
	}
	p.Heal()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	if v := <-views; v != nil && len(v.entries) != 1 {
		t.Errorf("%v is listed after a ticket was queued", v.entries)
	}
	until(func() bool { return len(d.listings) == 0 })
}
