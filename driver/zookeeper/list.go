package zookeeper

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/kvqueue"
)

// view is a queue as one listing shows it.
type view struct {
	kvqueue.Snapshot
	nodes   []string        // as the server returns them
	stat    *zk.Stat        // of the parent; nil: it is not there
	changed <-chan zk.Event // fires when the queue changes
}

// list returns the queue below parent, at or after the time of the call.
func (s *store) list(ctx context.Context, parent string) (*view, error) {
	v, err := call(ctx, s, func() (*view, error) {
		nodes, st, err := s.conn.Children(parent)
		return &view{nodes: nodes, stat: st}, err
	})
	return s.complete(ctx, parent, v, err)
}

// listAndWatch is list, with a watch.
func (s *store) listAndWatch(ctx context.Context, parent string) (*view, error) {
	v, err := call(ctx, s, func() (*view, error) {
		nodes, st, changed, err := s.conn.ChildrenW(parent)
		return &view{nodes: nodes, stat: st, changed: changed}, err
	})
	return s.complete(ctx, parent, v, err)
}

// complete makes a view of a listing. Foreign nodes are left out.
func (s *store) complete(ctx context.Context, parent string, v *view, err error) (*view, error) {
	if errors.Is(err, zk.ErrNoNode) {
		return s.noQueue(ctx)
	}
	if err != nil {
		return nil, err
	}
	v.Era = uint64(v.stat.Czxid)
	// The counter of sequences. What the server returns as Cversion counts both the
	// children that were created, which it is, and those that were deleted.
	v.Complete = uint64(uint32(v.stat.Cversion+v.stat.NumChildren) >> 1)
	v.Entries = make([]kvqueue.Entry, 0, len(v.nodes))
	var beyond []int // entries that are not ordered by their sequence
	for _, node := range v.nodes {
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
		v.Complete = byCreation | uint64(v.stat.Pzxid)
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
	v := &view{}
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

// Tickets implements kvqueue.Store (S18). An entry's version is the rest of its lease.
func (s *store) Tickets(ctx context.Context, name string) ([]kvqueue.Record, error) {
	if err := s.sync(ctx); err != nil {
		return nil, err
	}
	v, err := s.list(ctx, s.parent(name))
	if err != nil {
		return nil, err
	}
	slices.SortFunc(v.Entries, func(a, b kvqueue.Entry) int { return cmp.Compare(a.Number, b.Number) })
	records, err := each(ctx, s, v.Entries, func(e kvqueue.Entry) (kvqueue.Record, error) {
		data, st, err := s.conn.Get(e.Key)
		if errors.Is(err, zk.ErrNoNode) {
			return kvqueue.Record{}, nil
		}
		if err != nil {
			return kvqueue.Record{}, err
		}
		rec, id := parseRecord(data), idOf(e.Key)
		e.Version = uint64(rec.remaining())
		return kvqueue.Record{
			Ticket: kvqueue.Ticket{Entry: e, Name: name, ID: id, Session: sessionName(st.EphemeralOwner)},
			Shown: driver.Ticket{
				ID: id, Token: uint64(st.Czxid), Owner: rec.Owner, Note: rec.Note,
				Shared: e.Shared, Limit: e.Limit, Since: time.UnixMilli(st.Ctime),
			},
		}, nil
	})
	if err != nil {
		return nil, err
	}
	there := records[:0]
	for _, r := range records {
		if r.Key != "" {
			there = append(there, r)
		}
	}
	return there, nil
}

// Remaining implements kvqueue.Store (S19): how long, at least, a ticket outlives its
// holder's last heartbeat.
func (s *store) Remaining(_ context.Context, rs []*kvqueue.Record) error {
	for _, r := range rs {
		r.Shown.Remaining = time.Duration(r.Version)
	}
	return nil
}
