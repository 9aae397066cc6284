package sim

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// An operator who removes a ticket with the store's own tools, and tells nobody: the fault "hand".

// handmade is a model in which an operator can remove a ticket.
type handmade interface {
	// removeOne removes a ticket and returns its name and number, or "" if there is none.
	removeOne(rnd *stream) (name string, token uint64)
}

func (c *cluster) removeOne(rnd *stream) (string, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(c.data.keys)), func(key string) bool { return nameOfEtcd(key) == "" })
	if len(keys) == 0 {
		return "", 0
	}
	key := pick(rnd, keys...)
	if rnd.one(2) { // who is last waits, perhaps
		key = slices.MaxFunc(keys, func(a, b string) int { return int(c.data.keys[a].CreateRevision - c.data.keys[b].CreateRevision) })
	}
	kv, before := c.data.keys[key], c.data.revision
	c.data.remove(c.data.find(kv.Key, nil), before+1)
	c.change(before)
	return nameOfEtcd(key), uint64(kv.CreateRevision) //nolint:gosec // positive
}

// nameOfEtcd is the name of a ticket's key in etcd; "" if it is not one.
func nameOfEtcd(key string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(key, "locker/"), "#")
	return name
}

func (a *agent) removeOne(rnd *stream) (string, uint64) {
	const queues = "locker/~queue/"
	a.mu.Lock()
	defer a.mu.Unlock()
	keys := slices.DeleteFunc(slices.Sorted(maps.Keys(a.pairs)), func(key string) bool { return !strings.HasPrefix(key, queues) })
	if len(keys) == 0 {
		return "", 0
	}
	key := pick(rnd, keys...)
	if rnd.one(2) {
		key = slices.MaxFunc(keys, func(x, y string) int { return cmp.Compare(a.pairs[x].CreateIndex, a.pairs[y].CreateIndex) })
	}
	name, _, _ := strings.Cut(key[len(queues):], "/")
	p, index := a.pairs[key], a.write(maps.Clone(a.pairs))
	a.remove(key, index)
	return name, p.CreateIndex
}

// byHand has an operator remove a ticket.
func (r *runner) byHand(s *server, rnd *stream) {
	m, ok := s.model.(handmade)
	if !ok {
		return
	}
	name, token := m.removeOne(rnd)
	if name == "" {
		return
	}
	r.w.step("an operator removes %s %d", name, token)
	r.o.breaks(name, token)
	r.o.mu.Lock()
	r.o.untold[name] = time.Now()
	r.o.mu.Unlock()
	r.o.mustLearn(name, token)
}
