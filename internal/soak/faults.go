//go:build linux

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockerproject/locker/conformance/link"
	"github.com/lockerproject/locker/internal/retry"
	"github.com/lockerproject/locker/internal/testbed"
)

// A breakage is one kind of fault.
type breakage struct {
	name   string
	excuse bool // two may hold the name: the driver's documentation says so
	// do begins the fault, and returns what ends it.
	do func(r *rand.Rand) (undo func())
}

// breakages are all that can be done to the store of a run.
func (s *soak) breakages() (list []breakage) {
	list = append(list, s.ofServers()...)
	list = append(list, s.ofWays()...)
	list = append(list, s.ofPlaces()...)
	if d := s.disk; d != nil && !s.store.forgets { // which has nothing on a disk
		list = append(list, breakage{"disk full", false, func(*rand.Rand) func() {
			s.must(d.fill())
			return func() {
				s.must(d.free())
				s.restart(s.servers)
			}
		}})
	}
	if c := s.clock; c != nil {
		list = append(list,
			breakage{"clock of the servers set back", false, s.stepping(c, -3*time.Second)},
			breakage{"clock of the servers set forward", true, s.stepping(c, 4*time.Second)})
	}
	return list
}

// stepping steps a clock, and leaves it so.
func (s *soak) stepping(c *clock, d time.Duration) func(*rand.Rand) func() {
	return func(*rand.Rand) func() {
		s.must(c.step(d))
		return func() {}
	}
}

func (s *soak) ofServers() (list []breakage) {
	if len(s.servers) == 0 {
		return nil
	}
	list = []breakage{
		{"servers stopped", false, func(r *rand.Rand) func() { return pause(some(r, s.servers)) }},
		{"servers killed", s.store.forgets, func(r *rand.Rand) func() { return s.kill(some(r, s.servers)) }},
	}
	if s.leader != nil {
		list = append(list,
			breakage{"leader stopped", false, func(*rand.Rand) func() { return pause([]*testbed.Server{s.leader()}) }},
			breakage{"leader killed", false, func(*rand.Rand) func() { return s.kill([]*testbed.Server{s.leader()}) }})
	}
	return list
}

// some draws one or more of a list.
func some[T any](r *rand.Rand, list []T) (drawn []T) {
	n := 1 + r.IntN(len(list))
	if r.IntN(2) == 0 {
		n = 1
	}
	for _, i := range r.Perm(len(list))[:n] {
		drawn = append(drawn, list[i])
	}
	return drawn
}

func pause(servers []*testbed.Server) func() {
	for _, s := range servers {
		s.Pause()
	}
	return func() {
		for _, s := range servers {
			s.Resume()
		}
	}
}

func (s *soak) kill(servers []*testbed.Server) func() {
	for _, v := range servers {
		v.Kill()
	}
	return func() { s.restart(servers) }
}

// restart starts servers at once, since some answer only when others do.
func (s *soak) restart(servers []*testbed.Server) {
	var all sync.WaitGroup
	for _, v := range servers {
		v.Kill()
	}
	for _, v := range servers {
		all.Go(v.Start)
	}
	all.Wait()
}

func (s *soak) ofWays() (list []breakage) {
	if len(s.ways) == 0 {
		return nil
	}
	add := func(name string, f func(p *link.Proxy)) {
		list = append(list, breakage{"ways: " + name, false, func(r *rand.Rand) func() {
			ways := some(r, s.ways)
			for _, p := range ways {
				f(p)
			}
			return link.Proxies(ways).Heal
		}})
	}
	add("both directions delayed until healed", func(p *link.Proxy) { p.Cut() })
	add("both directions lost", func(p *link.Proxy) { p.Lose() })
	add("answers delayed until healed", func(p *link.Proxy) { p.HoldReplies(true) })
	add("answers lost", func(p *link.Proxy) { p.DropReplies(true) })
	add("connections refused", func(p *link.Proxy) { p.Refuse() })
	add("connections reset", func(p *link.Proxy) { p.Reset() })
	add("50 ms slower", func(p *link.Proxy) { p.Delay(50 * time.Millisecond) })
	return list
}

func (s *soak) ofPlaces() (list []breakage) {
	if len(s.places) == 0 {
		return nil
	}
	// pairs has the addresses that do not reach each other: from one member to the others, and back.
	add := func(name string, pairs func(one string, others []string) [][2]string) {
		list = append(list, breakage{"network: " + name, false, func(r *rand.Rand) func() {
			var order []string
			for _, i := range r.Perm(len(s.places)) {
				order = append(order, s.places[i].address)
			}
			return s.part(pairs(order[0], order[1:]))
		}})
	}
	add("one member is not heard by the others", func(one string, others []string) [][2]string { return from(one, others) })
	add("two members parted", func(one string, others []string) [][2]string { return between(one, others[:1]) })
	add("one member parted from the others", between)
	add("one member parted from all", func(one string, others []string) [][2]string {
		return append(between(one, others), from(one, []string{s.places[0].clients()})...)
	})
	add("all members parted", func(one string, others []string) (pairs [][2]string) {
		return append(between(one, others), between(others[0], others[1:])...)
	})
	return list
}

func from(one string, others []string) (pairs [][2]string) {
	for _, o := range others {
		pairs = append(pairs, [2]string{one, o})
	}
	return pairs
}

func between(one string, others []string) (pairs [][2]string) {
	for _, o := range others {
		pairs = append(pairs, [2]string{one, o}, [2]string{o, one})
	}
	return pairs
}

// part has all be lost that goes from the first address of each pair to the second.
func (s *soak) part(pairs [][2]string) (heal func()) {
	each := func(f func(place, string) error) {
		for _, pair := range pairs {
			for _, p := range s.places {
				if p.address == pair[0] {
					s.must(f(p, pair[1]))
				}
			}
		}
	}
	each(place.lose)
	return func() { each(place.restore) }
}

// breakStore does one fault after another to the store, until ctx ends.
func (s *soak) breakStore(ctx context.Context, r *rand.Rand) {
	list := s.breakages()
	for len(list) > 0 && ctx.Err() == nil {
		b := list[r.IntN(len(list))]
		end := s.witness.begin(b.name, b.excuse)
		undo := b.do(r)
		retry.Sleep(ctx, 100*time.Millisecond+time.Duration(r.Int64N(int64(s.longest))), nil)
		undo()
		end()
		retry.Sleep(ctx, time.Duration(r.Int64N(int64(4*time.Second))), nil)
	}
}

// breakWorkers stops and kills workers, until ctx ends.
func (s *soak) breakWorkers(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		retry.Sleep(ctx, time.Duration(r.Int64N(int64(4*time.Second))), nil)
		p := s.crew[r.IntN(len(s.crew))].Load()
		if p == nil {
			continue
		}
		if r.IntN(2) == 0 {
			s.witness.begin("worker killed", false)()
			p.Kill()
			continue
		}
		end := s.witness.begin("worker stopped", false)
		p.Pause()
		retry.Sleep(ctx, time.Duration(r.Int64N(int64(s.longest))), nil)
		p.Resume()
		end()
	}
}

func (s *soak) must(err error) {
	if err != nil {
		s.bed.Fatal(fmt.Sprint("soak: ", err))
	}
}
