package zookeeper

import (
	"context"
	"errors"
	"slices"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver/internal/kvqueue"
)

// view is a queue as one listing shows it.
type view struct {
	kvqueue.Snapshot
	version int32 // of the parent's data
	absent  bool  // the parent is not there
}

// list returns the queue below parent, at or after the time of the call.
func (s *store) list(ctx context.Context, parent string) (*view, error) {
	return s.view(ctx, parent, func() (listing, error) {
		nodes, st, err := s.conn.Children(parent)
		return listing{nodes, st}, err
	})
}

// listAndWatch is list, with a channel that fires when the queue changes.
func (s *store) listAndWatch(ctx context.Context, parent string) (v *view, changed <-chan zk.Event, err error) {
	v, err = s.view(ctx, parent, func() (l listing, err error) {
		l.nodes, l.parent, changed, err = s.conn.ChildrenW(parent)
		return l, err
	})
	return v, changed, err
}

// listing is what the server returns.
type listing struct {
	nodes  []string
	parent *zk.Stat
}

// view makes a view of a listing. Foreign nodes are left out.
func (s *store) view(ctx context.Context, parent string, list func() (listing, error)) (*view, error) {
	l, err := call(ctx, s, list)
	if errors.Is(err, zk.ErrNoNode) {
		return s.noQueue(ctx)
	}
	if err != nil {
		return nil, err
	}
	v := &view{version: l.parent.Version}
	v.Era = uint64(l.parent.Czxid)
	// The counter of sequences. What the server returns as Cversion counts both the
	// children that were created, which it is, and those that were deleted.
	v.Complete = uint64(uint32(l.parent.Cversion+l.parent.NumChildren) >> 1)
	v.Entries = make([]kvqueue.Entry, 0, len(l.nodes))
	var beyond []int // entries that are not ordered by their sequence
	for _, node := range l.nodes {
		e, ok := parseEntry(node)
		if !ok {
			continue
		}
		if !e.sequential() {
			beyond = append(beyond, len(v.Entries))
		}
		v.Entries = append(v.Entries, kvqueue.Entry{Key: parent + "/" + node, Number: e.number(0), Shared: e.shared, Limit: e.limit})
	}
	if v.Complete > lastSequence || len(beyond) > 0 {
		v.Complete = byCreation | uint64(l.parent.Pzxid)
	}
	return v, s.numberBeyond(ctx, v, beyond)
}

// noQueue is the view of a queue whose parent is not there. It is of a later era than
// the parent that was there last, and of no later one than the next: that of the last
// change of the base's children.
func (s *store) noQueue(ctx context.Context) (*view, error) {
	st, err := call(ctx, s, func() (*zk.Stat, error) {
		_, st, err := s.conn.Exists(s.base)
		return st, err
	})
	if err != nil {
		return nil, err
	}
	v := &view{absent: true}
	if st != nil {
		v.Era = uint64(st.Pzxid)
	}
	return v, nil
}

// numberBeyond asks for the czxid of entries that their sequence does not order.
func (s *store) numberBeyond(ctx context.Context, v *view, beyond []int) error {
	if len(beyond) == 0 {
		return nil
	}
	stats, err := each(ctx, s, beyond, func(i int) (*zk.Stat, error) {
		ok, st, err := s.conn.Exists(v.Entries[i].Key)
		if !ok {
			st = nil
		}
		return st, err
	})
	if err != nil {
		return err
	}
	for i, st := range stats {
		if e := &v.Entries[beyond[i]]; st != nil {
			e.Number = byCreation | uint64(st.Czxid)
		} else {
			e.Key = "" // it has left since
		}
	}
	v.Entries = slices.DeleteFunc(v.Entries, func(e kvqueue.Entry) bool { return e.Key == "" })
	return nil
}
