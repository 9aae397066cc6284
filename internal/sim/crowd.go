package sim

import (
	"fmt"
	"slices"
	"time"
	_ "unsafe" // for go:linkname
)

// lookFor is for how many tickets of a session each renewal on etcd and Consul looks: for so
// few that some locks are enough to show whether each has its turn.
//
//go:linkname lookFor github.com/lockerproject/locker/driver/internal/kvqueue.lookFor
var lookFor int

func init() { lookFor = 1 }

// crowd adds a process to some plans that holds several locks of one TTL for minutes, on names
// of its own, and an operator who removes a ticket. What it draws comes from a stream of its
// own, as tricks do.
func (p *plan) crowd() {
	s := newStream(p.seed, "crowd")
	if p.world != "consul" && p.world != "etcd" && p.world != "zookeeper" || !s.one(6) {
		return
	}
	crowd := &processPlan{name: "crowd", lives: 1, closes: 1, start: s.upTo(time.Second)}
	ttl := s.between(3*time.Second, 12*time.Second)
	for i := range 3 + s.n(4) { // renewed in several batches
		lock := step{verb: "acquire", names: []string{fmt.Sprint("crowd-", i)}, ttl: ttl, wait: -1, hold: 3 * time.Minute}
		crowd.threads = append(crowd.threads, []step{{verb: "sleep", hold: s.upTo(ttl / 3)}, lock})
	}
	p.processes = append(p.processes, crowd)
	p.faults = append(p.faults, faultPlan{kind: "hand", at: s.between(10*time.Second, time.Minute), harmless: true})
}

// mustLearn checks that a holder whose ticket was removed learns of it by its renewals: each
// looks for one more of the tickets that its process holds.
func (o *oracle) mustLearn(name string, token uint64) {
	if len(o.w.servers) != 1 {
		return
	}
	if _, ok := o.w.servers[0].model.(handmade); !ok {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.IndexFunc(o.holds[name], func(h *hold) bool { return h.token == token && h.alive() && !h.fixed })
	if i < 0 {
		return
	}
	h, renewals := o.holds[name][i], 1
	for _, holds := range o.holds {
		for _, other := range holds {
			if other.p == h.p && other.alive() {
				renewals++
			}
		}
	}
	longest := h.ttl
	if h.p.plan.name != "crowd" {
		longest = o.longest // it may be extended
	}
	begun, bound := time.Now(), time.Duration(renewals)*(longest/3+time.Second)+recovery
	o.w.at(begun.Add(bound), func() {
		if h.alive() && !o.w.disturbed(h.p.name, begun, time.Now()) {
			o.w.fail("%v was removed, and the holder has not learnt of it for %v", h, bound)
		}
	})
}
