package zkconn

import (
	"context"
	"errors"
	"sync"

	"github.com/go-zookeeper/zk"
)

// Watch is a watch on a node and its data, or on a node's children.
type Watch struct {
	C          <-chan zk.Event // fires, and is then closed, so that any number may wait on it
	Seen       State           // of what is watched, when the watch was set
	connection uint64          // on which it was set
}

// State distinguishes the states of a node's data, or of its children. (One transaction,
// such as the end of a session, may change the children more than once.)
type State struct {
	Zxid    int64 // of the last change
	Changes int32 // how many so far
}

// DataOf returns the state of a node's data.
func DataOf(st *zk.Stat) State { return State{st.Mzxid, st.Version} }

// ChildrenOf returns the state of a node's children.
func ChildrenOf(st *zk.Stat) State { return State{st.Pzxid, st.Cversion} }

// HasFired reports whether the watch has fired.
func (w Watch) HasFired() bool {
	select {
	case <-w.C:
		return true
	default:
		return false
	}
}

// Holds reports whether the watch is set, and has not fired.
func (w Watch) Holds() bool { return w.C != nil && !w.HasFired() }

// Fired is a watch that has fired.
var Fired = func() Watch {
	ch := make(chan zk.Event)
	close(ch)
	return Watch{C: ch}
}()

// Shows reports whether a watch shows that nothing has happened yet: it has not fired,
// and was set on the present connection. See Conn.observe.
func (c *Conn) Shows(w Watch) bool { return w.Holds() && c.Same(w.connection) }

// watches are the watches that WatchNode and WatchChildren have set. The client cannot
// remove a watch. So a waiter that gives up leaves its watch, and the next one that waits
// for the same node uses it. A node has one watch at most, on the server and here, which
// ends with the node.
type watches struct {
	mu   sync.Mutex
	set  map[string]Watch // by path, which has a slash at the end if the watch is on the children
	most int              // the size above which fired watches are removed
}

// watchOn returns the watch on key if it has not fired, and was set on this connection:
// an older one may miss an event.
func (c *Conn) watchOn(key string) (Watch, bool) {
	c.watches.mu.Lock()
	defer c.watches.mu.Unlock()
	w, ok := c.watches.set[key]
	if ok && (w.HasFired() || !c.Same(w.connection)) {
		delete(c.watches.set, key)
		ok = false
	}
	return w, ok
}

func (w *watches) put(key string, set Watch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.set[key] = set
	if len(w.set) <= w.most {
		return
	}
	for key, other := range w.set {
		if other.HasFired() {
			delete(w.set, key)
		}
	}
	w.most = 2*len(w.set) + 64
}

// Watch sets a watch on a node. It is not shared.
func (c *Conn) Watch(ctx context.Context, path string) (Watch, error) {
	connection := c.Number()
	// Not ExistsW: on a node that is not there it would leave a watch for ever.
	a, err := c.do(ctx, func(a *answer) (err error) { _, a.stat, a.fired, err = c.zk.GetW(path); return err })
	if err != nil {
		return Watch{}, err
	}
	return Watch{C: a.fired, Seen: DataOf(a.stat), connection: connection}, nil
}

// WatchNode returns a watch on a node. If the node is not there, the watch has fired.
func (c *Conn) WatchNode(ctx context.Context, path string) (Watch, error) {
	if w, ok := c.watchOn(path); ok {
		return w, nil
	}
	w, err := c.Watch(ctx, path)
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return Fired, nil
	case err == nil:
		c.watches.put(path, w)
	}
	return w, err
}

// WatchChildren returns a watch on a node's children. It has fired already if they are
// not as the caller has seen them.
func (c *Conn) WatchChildren(ctx context.Context, path string, seen State) (Watch, error) {
	if w, ok := c.watchOn(path + "/"); ok && w.Seen == seen {
		return w, nil // otherwise the caller's view may be older, or the watch has missed an event
	}
	connection := c.Number()
	a, err := c.do(ctx, func(a *answer) (err error) { _, a.stat, a.fired, err = c.zk.ChildrenW(path); return err })
	switch {
	case errors.Is(err, zk.ErrNoNode):
		return Fired, nil
	case err != nil:
		return Watch{}, err
	}
	w := Watch{C: a.fired, Seen: ChildrenOf(a.stat), connection: connection}
	c.watches.put(path+"/", w)
	if w.Seen != seen {
		return Fired, nil
	}
	return w, nil
}
