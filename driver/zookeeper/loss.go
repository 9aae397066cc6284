package zookeeper

import (
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver/internal/kvqueue"
	"github.com/lockerproject/locker/internal/retry"
)

// node is the node of a ticket of this driver. store.mu guards what is not constant.
type node struct {
	path, name string
	number     uint64
	permit     []byte // the data, if it is a permit
	ahead      string // a node that it will wait for, see watchOwn
	watch      watch  // zero: not yet
}

// watchDelay is how long a ticket is queued, once or twice, before its own node is
// watched. The watch tells of a break, and a short critical section is over before one.
const watchDelay = 50 * time.Millisecond

// register takes in the node of a ticket, and has it watched soon.
func (s *store) register(n *node) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[n.path] = n
	s.watchLater(n)
}

// unregister forgets a node that is to be deleted, so that its end is no loss.
func (s *store) unregister(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, path)
}

// watchLater has a node watched soon. With mu held.
func (s *store) watchLater(n *node) {
	s.young = append(s.young, n)
	if !s.watching {
		s.watching = kvqueue.Go(s.engine, s.watchNodes)
	}
}

// watchNodes is the background task that watches the nodes of this driver's tickets.
func (s *store) watchNodes(ctx context.Context) {
	for retry.Sleep(ctx, watchDelay, nil) {
		batch, more := s.takeDue()
		if !more {
			return
		}
		bounded, cancel := context.WithTimeout(ctx, taskBound)
		_, err := each(bounded, s, batch, func(n *node) (struct{}, error) { return struct{}{}, s.watchOwn(bounded, n) })
		cancel()
		if err != nil && !retry.Sleep(ctx, taskPause, nil) {
			return
		}
	}
}

// takeDue returns the nodes that are due, until they are watched; more says that there
// are some, or will be.
func (s *store) takeDue() (batch []*node, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.due {
		if s.nodes[n.path] == n && n.watch.fired == nil {
			batch = append(batch, n)
		}
	}
	s.due, s.young = append(s.young, batch...), nil
	s.watching = len(s.due) > 0
	return batch, s.watching
}

// watchOwn watches a node of this driver. If it has gone its ticket is lost. The node
// that a permit will wait for is watched with it, so that this takes no time when its turn
// has come.
func (s *store) watchOwn(ctx context.Context, n *node) error {
	set, err := s.setWatch(n.path)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		s.deleted(n.path)
		return nil
	case err != nil:
		return err
	}
	s.mu.Lock()
	n.watch = set
	ahead := n.ahead
	n.ahead = ""
	s.mu.Unlock()
	if ahead != "" {
		_, _ = s.watch(ctx, ahead)
	}
	return nil
}

// watchNow has the node of a waiter watched at once, unless it is.
func (s *store) watchNow(ctx context.Context, path string) error {
	s.mu.Lock()
	n := s.nodes[path]
	s.mu.Unlock()
	if n == nil || s.reconnects.unknown || s.there(path) {
		return nil
	}
	return do(ctx, s, func() error { return s.watchOwn(ctx, n) })
}

// there reports whether a node of this driver is there for sure: the watch on it was set
// on the present connection, and has not fired, see reconnects.
func (s *store) there(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.nodes[path]
	return n != nil && n.watch.fired != nil && !fired(n.watch.fired) && s.reconnects.same(n.watch.connection)
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
