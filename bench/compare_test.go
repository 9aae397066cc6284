package main

import (
	"testing"
	"time"
)

func run(cyclesOf, rawCycles float64, handoffOf time.Duration) []result {
	return []result{
		{Store: "redis", Subject: "raw", Cycles: rawCycles, HandoffP50: time.Millisecond},
		{Store: "redis", Subject: "locker", Cycles: cyclesOf, HandoffP50: handoffOf},
		{Store: "etcd", Subject: "locker", Cycles: 1},
	}
}

func TestCompare(t *testing.T) {
	before := run(80, 100, 2*time.Millisecond)
	for _, c := range []struct {
		name string
		now  []result
		want string // the figure that is worse
	}{
		{"the same on a machine half as fast", run(40, 50, 2*time.Millisecond), ""},
		{"a little worse", run(66, 100, 2*time.Millisecond), ""},
		{"worse", run(60, 100, 2*time.Millisecond), "cycles/s"},
		{"a slower hand-off", run(80, 100, 3*time.Millisecond), "1 / hand-off"},
		{"better", run(100, 100, time.Millisecond), ""},
	} {
		changes := compare(before, c.now)
		if len(changes) != 2 {
			t.Fatalf("%s: %d figures, want 2: %+v", c.name, len(changes), changes)
		}
		worst := ""
		for _, ch := range changes {
			if ch.isWorse() {
				worst += ch.figure
			}
		}
		if worst != c.want {
			t.Errorf("%s: worse is %q, want %q", c.name, worst, c.want)
		}
	}
}

func TestConfirmed(t *testing.T) {
	before, slow, fine := run(80, 100, 1), run(50, 100, 1), run(80, 100, 1)
	if bad := confirmed(compare(before, slow), compare(before, slow)); len(bad) != 1 || bad[0].figure != "cycles/s" {
		t.Errorf("worse twice: %+v", bad)
	}
	for _, second := range [][]result{fine, nil} {
		if bad := confirmed(compare(before, slow), compare(before, second)); len(bad) != 0 {
			t.Errorf("worse once: %+v", bad)
		}
	}
	if bad := confirmed(compare(before, fine), compare(before, slow)); len(bad) != 0 {
		t.Errorf("worse once: %+v", bad)
	}
}
