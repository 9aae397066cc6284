package zookeeper

import (
	"context"
	"errors"
	"sync"

	"github.com/go-zookeeper/zk"
)

// watches are those that waiters have set. The client cannot take a watch back, so a
// waiter that gives up leaves it, and the next one that waits for the same node uses it:
// there is one a node at most, on the server and here, and it goes with the node.
//
// A fired channel is closed after its event, so that any number may wait on it.
type watches struct {
	mu    sync.Mutex
	nodes map[string]watch // by path; of the children with a slash at the end
	most  int              // size that brings on the next pruning
}

type watch struct {
	fired      <-chan zk.Event
	connection uint64   // on which it was set
	version    int32    // of the node's data when it was set
	children   []string // of a watch on the children: those that there were
}

func fired(ch <-chan zk.Event) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// get returns the watch on key that has not fired, and that was set on this connection:
// one from before may miss an event. (A driver that receives no events takes any.)
func (w *watches) get(key string, r *reconnects) (watch, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	s, ok := w.nodes[key]
	if ok && (fired(s.fired) || !r.unknown && !r.same(s.connection)) {
		delete(w.nodes, key)
		ok = false
	}
	return s, ok
}

func (w *watches) put(key string, s watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.nodes[key] = s
	if len(w.nodes) <= w.most {
		return
	}
	for k, s := range w.nodes {
		if fired(s.fired) {
			delete(w.nodes, k)
		}
	}
	w.most = 2*len(w.nodes) + 64
}

// again is a channel that has fired: the queue is to be read again at once.
var again = func() <-chan zk.Event {
	ch := make(chan zk.Event)
	close(ch)
	return ch
}()

// watchNode returns a watch that fires when the node's data change or it is deleted. With
// unmarked it has fired already if its data were changed before.
func (d *Driver) watchNode(ctx context.Context, path string, unmarked bool) (watch, error) {
	if s, ok := d.watches.get(path, &d.reconnects); ok && (!unmarked || s.version == 0) {
		return s, nil
	}
	connection := d.reconnects.now()
	s, err := call(ctx, d, func() (watch, error) {
		// Not ExistsW: of a node that is gone that would leave a watch for ever.
		_, st, ch, err := d.conn.GetW(path)
		if err != nil {
			return watch{}, err
		}
		return watch{fired: ch, connection: connection, version: st.Version}, nil
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return watch{fired: again}, nil
	case err != nil:
		return watch{}, err
	}
	d.watches.put(path, s)
	if unmarked && s.version != 0 {
		s.fired = again
	}
	return s, nil
}

// watchQueue returns a channel that fires when a ticket is queued or leaves the queue
// below parent. It has fired already if v, the queue as the caller has seen it, is not
// the present one.
func (d *Driver) watchQueue(ctx context.Context, parent string, v *view) (<-chan zk.Event, error) {
	if s, ok := d.watches.get(parent+"/", &d.reconnects); ok && v.shows(s.children) {
		return s.fired, nil // otherwise v may be older, or the watch has missed something
	}
	connection := d.reconnects.now()
	s, err := call(ctx, d, func() (watch, error) {
		nodes, _, ch, err := d.conn.ChildrenW(parent)
		return watch{fired: ch, connection: connection, children: nodes}, err
	})
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return again, nil
	case err != nil:
		return nil, err
	}
	d.watches.put(parent+"/", s)
	if !v.shows(s.children) {
		return again, nil
	}
	return s.fired, nil
}

// shows reports whether the tickets among nodes are those of v.
func (v *view) shows(nodes []string) bool {
	there := make(map[string]bool, len(v.entries))
	for _, e := range v.entries {
		there[e.node] = true
	}
	n := 0
	for _, node := range nodes {
		if _, ok := parseEntry(node); ok {
			if n++; !there[node] {
				return false
			}
		}
	}
	return n == len(v.entries)
}
