package zookeeper

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/kvqueue"
)

// orphan is a ticket whose create was given up without an answer. The request may
// still be in flight, on a connection that the server has not closed yet, and create a
// node that nobody knows of and that lives as long as the session. So the queue is
// searched for it until that cannot happen any more.
type orphan struct {
	parent string
	until  time.Time
}

// orphanInterval is how often the queues are searched.
const orphanInterval = time.Second

func (s *store) orphan(parent, id string) {
	o := orphan{parent: parent, until: time.Now().Add(crashBound(s.timeout()))} // by then the server has closed the connection
	s.mu.Lock()
	defer s.mu.Unlock()
	s.orphans[id] = o
	if !s.removing {
		s.removing = kvqueue.Go(s.engine, s.removeOrphans)
	}
}

// takeOrphan is called before a create for the same ticket: its node is not an orphan.
// It reports whether there may be one.
func (s *store) takeOrphan(id string) (was bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, was = s.orphans[id]
	delete(s.orphans, id)
	return was
}

// removeOrphans is the background task.
func (s *store) removeOrphans(ctx context.Context) {
	for pause(ctx, orphanInterval) {
		s.mu.Lock()
		left := maps.Clone(s.orphans)
		s.removing = len(left) > 0
		s.mu.Unlock()
		if len(left) == 0 {
			return
		}
		for id, o := range left {
			s.removeOrphan(ctx, id, o)
		}
	}
}

// removeOrphan removes what a late create has made. The last search begins after the
// time in which one may arrive.
func (s *store) removeOrphan(ctx context.Context, id string, o orphan) {
	ctx, cancel := context.WithTimeout(ctx, taskBound)
	defer cancel()
	last := time.Now().After(o.until)
	if s.sync(ctx) != nil {
		return
	}
	orphaned := func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		_, is := s.orphans[id]
		return is
	}
	if err := s.deleteAll(ctx, o.parent, id, orphaned); err != nil && !errors.Is(err, driver.ErrLost) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if last && s.orphans[id] == o {
		delete(s.orphans, id)
	}
}

// deleteAll deletes all nodes of a ticket, as long as wanted says so, but the one that the
// engine knows. ErrLost says that there were none.
func (s *store) deleteAll(ctx context.Context, parent, id string, wanted func() bool) error {
	v, err := s.list(ctx, parent)
	if err != nil {
		return err
	}
	result := driver.ErrLost
	for _, e := range v.Entries {
		if idOf(e.Key) != id || !wanted() || s.registered(e.Key) {
			continue
		}
		err := s.Delete(ctx, &kvqueue.Ticket{Entry: e})
		if err != nil && !errors.Is(err, driver.ErrLost) {
			return err
		}
		result = nil
	}
	return result
}
