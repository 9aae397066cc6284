package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver/internal/kvqueue"
	"github.com/lockerproject/locker/internal/retry"
)

// watch is one that is set on a node, and fires when the node's data change or it is
// deleted. A fired channel is closed after its event.
type watch struct {
	fired      <-chan zk.Event
	connection uint64 // on which it was set
	marked     bool   // the node's data were changed before
}

func fired(ch <-chan zk.Event) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// setWatch sets a watch. It is no ExistsW: of a node that is gone that would leave a
// watch for ever.
func (s *store) setWatch(path string) (watch, error) {
	connection := s.reconnects.now()
	_, st, ch, err := s.conn.GetW(path)
	if err != nil {
		return watch{}, err
	}
	return watch{fired: ch, connection: connection, marked: st.Version > 0}, nil
}

// watch watches a node that a ticket of this driver waits for. The client cannot take a
// watch back, so a waiter that gives up leaves it, and the next one that waits for the
// same node uses it: there is one a node at most, and it goes with the node. One that was
// set on another connection may miss an event, and counts no more.
func (s *store) watch(ctx context.Context, path string) (watch, error) {
	s.mu.Lock()
	set, ok := s.watches[path]
	s.mu.Unlock()
	if ok && s.reconnects.same(set.connection) && !fired(set.fired) {
		return set, nil
	}
	set, err := call(ctx, s, func() (watch, error) { return s.setWatch(path) })
	if err == nil && !s.reconnects.unknown {
		s.mu.Lock()
		s.watches[path] = set
		s.mu.Unlock()
	}
	return set, err
}

// unwatch forgets a watch that has fired.
func (s *store) unwatch(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watches, path)
}

// Aim implements kvqueue.Store (S15). Where one of several may be enough, the whole queue
// has to be watched, by each process that waits. But a permit waits for the nearest one
// ahead that is not granted and whose limit is not smaller: that one is granted first,
// and marks its node then. There is none ahead of the first waiter.
func (s *store) Aim(blockers []kvqueue.Entry, some bool, limit int) kvqueue.Entry {
	if !some {
		return blockers[len(blockers)-1]
	}
	for i, e := range slices.Backward(blockers) {
		if limit > 0 && e.Limit >= limit && i >= e.Limit {
			return e
		}
	}
	return kvqueue.Entry{}
}

// willWait notes which node a permit waits for, so that it is watched in good time.
func (s *store) willWait(n *node, limit int, ahead []kvqueue.Entry) {
	slices.SortFunc(ahead, func(a, b kvqueue.Entry) int { return cmp.Compare(a.Number, b.Number) })
	aim := s.Aim(ahead, true, limit).Key
	s.mu.Lock()
	defer s.mu.Unlock()
	n.ahead = aim
}

// mark writes the node of a permit that was granted, for who waits for that: see Aim.
func (s *store) mark(ctx context.Context, t kvqueue.Ticket) {
	for {
		s.mu.Lock()
		n := s.nodes[t.Key]
		if n != nil {
			n.ahead = ""
		}
		s.mu.Unlock()
		if n == nil {
			return
		}
		bounded, cancel := context.WithTimeout(ctx, taskBound)
		err := do(bounded, s, func() error {
			_, err := s.conn.Set(n.path, n.permit, -1)
			return err
		})
		cancel()
		if err == nil || answered(err) || !retry.Sleep(ctx, taskPause, nil) {
			return
		}
	}
}

// Watch implements kvqueue.Store (S16). Of an exclusive ticket that waits for an exclusive
// one it is told when that one was held and released: its deletion writes its node first.
// Otherwise nothing is told of what was aimed at: the engine reads the queue when
// Watch returns, which shows besides that the ticket's own node is there.
//
// The client sets its watches again on each new connection: in several requests, each of
// which asks for events since the last answer that the client has had. If an answer
// comes first, or the connection ends between two of them, an event before that is
// missed. So the queue is read again on each new connection, too.
func (s *store) Watch(ctx context.Context, w kvqueue.Watching, tell func(kvqueue.Event)) error {
	reconnected := s.reconnects.next()
	if w.Aim.Key == "" {
		return s.watchQueue(ctx, w.Name, reconnected, tell)
	}
	exclusive := !w.First.Shared && !w.Aim.Shared
	set, err := s.watch(ctx, w.Aim.Key)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return nil
	case err != nil:
		return err
	case set.marked && w.First.Shared && w.Aim.Shared: // a permit that is granted, by now
		return s.watchQueue(ctx, w.Name, reconnected, tell)
	case exclusive && len(set.fired) == 0:
		if err := s.watchNow(ctx, w.First.Key); err != nil {
			return err
		}
	}
	select {
	case ev := <-set.fired:
		s.unwatch(w.Aim.Key)
		if exclusive && ev.Type == zk.EventNodeDataChanged && s.there(w.First.Key) {
			tell(kvqueue.Event{Gone: []kvqueue.Gone{{Key: w.Aim.Key, Before: w.Aim.Number + 1, All: true}}})
		}
	case <-reconnected:
	case <-ctx.Done():
	}
	return nil
}

// watchQueue tells of all changes of a queue.
func (s *store) watchQueue(ctx context.Context, name string, reconnected <-chan struct{}, tell func(kvqueue.Event)) error {
	for {
		v, err := s.listAndWatch(ctx, s.parent(name))
		if err != nil {
			return err
		}
		if v.stat == nil {
			return nil
		}
		tell(kvqueue.Event{Queue: &v.Snapshot})
		select {
		case <-v.changed:
		case <-reconnected:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}
