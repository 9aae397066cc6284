package sim

import (
	"testing"
	"time"
)

// The time in which a lease could have been renewed is the longest without a fault of that
// process, or of the servers.
func TestFree(t *testing.T) {
	begun := time.Now()
	at := func(s int) time.Time { return begun.Add(time.Duration(s) * time.Second) }
	w := &world{begun: begun, faults: []interval{
		{at(2), at(5), "cut", "p0", -1},
		{at(4), at(6), "pause", "", -1},
		{at(12), at(13), "cut", "p1", -1},
		{at(17), at(30), "cut", "p0", -1},
	}}
	for process, want := range map[string]time.Duration{"p0": 11 * time.Second, "p1": 7 * time.Second, "p2": 14 * time.Second} {
		if got := w.free(process, at(0), at(20)); got != want {
			t.Errorf("%s: the longest time without a fault is %v, want %v", process, got, want)
		}
	}
	if got := w.free("p0", at(18), at(20)); got != 0 {
		t.Errorf("in a cut: %v, want none", got)
	}
}

// A fault of one message keeps a process from nothing else where each message has its own connection.
func TestFreeBesideAMessage(t *testing.T) {
	begun := time.Now()
	w := &world{begun: begun, faults: []interval{{begun.Add(2 * time.Second), begun.Add(9 * time.Second), "drop", "p0", -1}}}
	for exact, want := range map[bool]time.Duration{false: 2 * time.Second, true: 8 * time.Second} {
		w.exact = exact
		if got := w.free("p0", begun, begun.Add(10*time.Second)); got != want {
			t.Errorf("exact %t: %v, want %v", exact, got, want)
		}
	}
}

// A fault that waits for a message begins with the first one of its kind and process, once.
func TestTrap(t *testing.T) {
	p := &path{w: &world{}, process: "p0"}
	begun := 0
	p.w.traps = []*trap{
		{process: "p0", write: true, begin: func() { begun++ }, sprung: make(chan struct{})},
		{process: "p1", write: true, begin: func() { t.Error("of another process") }, sprung: make(chan struct{})},
		{process: "p0", write: false, begin: func() { t.Error("of a reading") }, sprung: make(chan struct{})},
		{process: "p0", write: true, served: true, begin: func() { t.Error("of what was served") }, sprung: make(chan struct{})},
	}
	p.passes("PutItem key", false)
	p.passes("PutItem key", false)
	if begun != 1 || len(p.w.traps) != 3 {
		t.Errorf("begun %d times, %d traps are left", begun, len(p.w.traps))
	}
}

func TestWrites(t *testing.T) {
	for what, want := range map[string]bool{
		"BatchGetItem k": false, "PutItem k": true,
		"GET /v1/kv/k": false, "PUT /v1/session/create {}": true,
		`PUT /v1/txn [{"KV":{"Verb":"get-tree"}}]`: false, `PUT /v1/txn [{"KV":{"Verb":"lock"}}]`: true,
		"mg k v c": false, "cas k 0 60 5 7": true, "wait for n0": false, "renew n0": true,
	} {
		if writes(what) != want {
			t.Errorf("%s: writes: %t, want %t", what, !want, want)
		}
	}
}
