package zookeeper

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver/internal/kvqueue"
)

// watches are those that are set on what waiters wait for. The client cannot take a
// watch back, so a waiter that gives up leaves it, and the next one that waits for the
// same node uses it: there is one a node at most, on the server and here, and it goes
// with the node.
//
// A fired channel is closed after its event, so that any number may wait on it.
type watches struct {
	mu    sync.Mutex
	nodes map[string]watch // by path
	most  int              // size that brings on the next pruning
}

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

// get returns the watch on a path that has not fired, and that was set on this
// connection: one from before may miss an event. (A driver that receives no events takes
// any.)
func (w *watches) get(path string, r *reconnects) (watch, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	set, ok := w.nodes[path]
	if ok && (fired(set.fired) || !r.unknown && !r.same(set.connection)) {
		delete(w.nodes, path)
		ok = false
	}
	return set, ok
}

func (w *watches) put(path string, set watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[path] = set
	if len(w.nodes) <= w.most {
		return
	}
	for path, set := range w.nodes {
		if fired(set.fired) {
			delete(w.nodes, path)
		}
	}
	w.most = 2*len(w.nodes) + 64
}

// watch returns a watch that fires when a node's data change or it is deleted.
func (s *store) watch(ctx context.Context, path string) (watch, error) {
	if set, ok := s.watches.get(path, &s.reconnects); ok {
		return set, nil
	}
	set, err := s.setWatch(ctx, path)
	if err == nil {
		s.watches.put(path, set)
	}
	return set, err
}

func (s *store) setWatch(ctx context.Context, path string) (watch, error) {
	connection := s.reconnects.now()
	return call(ctx, s, func() (watch, error) {
		// Not ExistsW: of a node that is gone that would leave a watch for ever.
		_, st, ch, err := s.conn.GetW(path)
		if err != nil {
			return watch{}, err
		}
		return watch{fired: ch, connection: connection, marked: st.Version > 0}, nil
	})
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

// mark writes the node of a permit, since it was granted: see Aim. If that is not
// answered, those that wait for it find out when they read the queue again.
func (s *store) mark(ctx context.Context, t kvqueue.Ticket) {
	s.mu.Lock()
	n := s.nodes[t.Key]
	s.mu.Unlock()
	if n == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, taskBound)
	defer cancel()
	_ = do(ctx, s, func() error {
		_, err := s.conn.Set(n.path, n.permit, -1)
		return err
	})
}

// Watch implements kvqueue.Store (S16). It tells nothing of the one that was aimed at:
// the engine reads the queue when Watch returns, which shows besides that the ticket's
// own node is there.
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
	set, err := s.watch(ctx, w.Aim.Key)
	if errors.Is(err, zk.ErrNoNode) {
		return nil
	}
	switch {
	case err != nil:
		return err
	case set.marked: // meanwhile, or by hand
		return s.watchQueue(ctx, w.Name, reconnected, tell)
	}
	select {
	case <-set.fired:
	case <-reconnected:
	case <-ctx.Done():
	}
	return nil
}

// watchQueue tells of all changes of a queue.
func (s *store) watchQueue(ctx context.Context, name string, reconnected <-chan struct{}, tell func(kvqueue.Event)) error {
	for {
		v, changed, err := s.listAndWatch(ctx, s.parent(name))
		if err != nil {
			return err
		}
		if v.absent {
			return nil
		}
		tell(kvqueue.Event{Queue: &v.Snapshot})
		select {
		case <-changed:
		case <-reconnected:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// node is the node of a ticket of this driver. store.mu guards what is not constant.
type node struct {
	path, name string
	number     uint64
	minHold    bool
	permit     []byte // the data, if it is a permit
	since      time.Time
	watch      watch // zero: not yet
}

// watchDelay is how long a ticket is queued before its own node is watched. The watch
// tells of a break, and a short critical section is over before one.
const watchDelay = 100 * time.Millisecond

// register takes in the node of a ticket, and has it watched soon.
func (s *store) register(n *node) {
	n.since = time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[n.path] = n
	s.watchLater(n)
}

func (s *store) registered(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.nodes[path] != nil
}

// unregister forgets a node that is to be deleted, so that its end is no loss.
func (s *store) unregister(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, path)
}

// watchLater has a node watched soon. With mu held.
func (s *store) watchLater(n *node) {
	s.due = append(s.due, n)
	if !s.watching {
		s.watching = kvqueue.Go(s.engine, s.watchNodes)
	}
}

// watchNodes is the background task that watches the nodes of this driver's tickets.
func (s *store) watchNodes(ctx context.Context) {
	for {
		batch, wait := s.takeDue()
		switch {
		case wait > 0:
			if !pause(ctx, wait) {
				return
			}
		case len(batch) == 0:
			return
		default:
			bounded, cancel := context.WithTimeout(ctx, taskBound)
			_, err := each(bounded, s, batch, func(n *node) (struct{}, error) { return struct{}{}, s.watchOwn(n) })
			cancel()
			if err != nil && !pause(ctx, time.Second) {
				return
			}
		}
	}
}

// takeDue returns the nodes that are due, or how long to wait for the next. If it
// returns neither there are none, and the task ends.
func (s *store) takeDue() (batch []*node, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, n := range s.due {
		left := watchDelay - time.Since(n.since)
		if s.nodes[n.path] != n || n.watch.fired != nil {
			continue
		}
		if left > 0 {
			s.due = slices.Delete(s.due, 0, i)
			if len(batch) > 0 {
				return batch, 0
			}
			return nil, max(left, watchDelay/10)
		}
		batch = append(batch, n)
	}
	s.due = nil
	s.watching = len(batch) > 0
	return batch, 0
}

// watchOwn watches a node of this driver. If it has gone its ticket is lost; if the
// server does not answer it is asked again later.
func (s *store) watchOwn(n *node) error {
	connection := s.reconnects.now()
	_, _, ch, err := s.conn.GetW(n.path)
	if errors.Is(err, zk.ErrNoNode) {
		s.deleted(n.path)
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.nodes[n.path] != n:
	case err != nil:
		s.watchLater(n)
	default:
		n.watch = watch{fired: ch, connection: connection}
	}
	return err
}

// changed handles the deletion of a node, or the change of its data.
func (s *store) changed(ev zk.Event) {
	if ev.Type == zk.EventNodeDeleted {
		s.deleted(ev.Path)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[ev.Path]; n != nil && n.watch.fired != nil {
		n.watch = watch{}
		s.watchLater(n)
	}
}

// deleted notifies the engine of the end of a node of this driver, by anybody's doing.
func (s *store) deleted(path string) {
	s.mu.Lock()
	n := s.nodes[path]
	delete(s.nodes, path)
	s.mu.Unlock()
	if n == nil {
		return
	}
	s.removeLater(parentOf(path))
	kvqueue.Vanished(s.engine, n.name, kvqueue.Gone{Key: path, Before: n.number + 1})
}

// Missing implements kvqueue.Store (S14). The watches on the nodes, whose events come
// before the answer to the KeepAlive that was before, show that they are there.
func (s *store) Missing(ctx context.Context, _ string, ts []kvqueue.Ticket) (missing []int, err error) {
	var unwatched []int
	s.mu.Lock()
	for i, t := range ts {
		if n := s.nodes[t.Key]; n == nil || n.watch.fired != nil && fired(n.watch.fired) {
			unwatched = append(unwatched, i)
		}
	}
	s.mu.Unlock()
	gone, err := each(ctx, s, unwatched, func(i int) (bool, error) {
		ok, _, err := s.conn.Exists(ts[i].Key)
		return !ok, err
	})
	if err != nil {
		return nil, err
	}
	for i, gone := range gone {
		if gone {
			missing = append(missing, unwatched[i])
		}
	}
	return missing, nil
}
