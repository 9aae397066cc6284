package sim

import (
	"context"
	"testing"
	"time"
)

// Of a group, no store is asked while an observer of one name delays the next: it is unavailable if the caller leaves
// soon after that, and at no other time.
func TestObservedGroup(t *testing.T) {
	begun := time.Now()
	at := func(ms int) time.Time { return begun.Add(time.Duration(ms) * time.Millisecond) }
	for _, test := range []struct {
		name  string
		parts int
		over  int // ms
		naps  []int
		want  bool
	}{
		{"one name", 1, 3000, []int{0, 2990}, false},
		{"no observer", 2, 3000, nil, false},
		{"all the time", 2, 3000, []int{0, 1500, 1510, 2990}, true},
		{"until after the end", 2, 3000, []int{20, 8000}, true},
		{"half of the time", 2, 3000, []int{0, 1500}, false},
		{"after the end", 2, 3000, []int{3000, 8000}, false},
	} {
		w := &world{begun: begun}
		p := &process{w: w, name: "p0", plan: &processPlan{observer: "slow"}}
		c := &call{p: p, s: &step{verb: "all", names: []string{"n0", "n1"}, ttl: time.Minute, wait: -1}, ctx: context.Background(), begun: begun, over: at(test.over), parts: map[string]*part{}}
		for _, name := range c.s.names[:test.parts] {
			c.parts[name] = &part{c: c, name: name}
		}
		for i := 0; i < len(test.naps); i += 2 {
			p.naps = append(p.naps, nap{c, at(test.naps[i]), at(test.naps[i+1])})
			p.naps = append(p.naps, nap{&call{s: c.s}, begun, at(2990)}) // of another call
		}
		o := &oracle{w: w}
		if got := o.unavailable(c); got != test.want {
			t.Errorf("%s: %t, want %t", test.name, got, test.want)
		}
	}
}
