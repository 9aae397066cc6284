package zookeeper

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver/internal/kvqueue"
	"github.com/lockerproject/locker/internal/retry"
)

// Times of background tasks.
const (
	taskBound = 10 * time.Second // one request
	taskPause = time.Second      // between two tries
)

// expectsOthers reports whether a queue was not empty when last seen. It is a hint about
// which request to try first, and may be wrong.
func (s *store) expectsOthers(parent string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.occupied[parent]
	return ok
}

func (s *store) expectOthers(parent string, yes bool) {
	const most = 4096
	s.mu.Lock()
	defer s.mu.Unlock()
	if !yes {
		delete(s.occupied, parent)
		return
	}
	if len(s.occupied) >= most {
		clear(s.occupied)
	}
	s.occupied[parent] = struct{}{}
}

// removeEmpty removes the node of a name whose queue is empty. The server refuses if a
// ticket has been queued meanwhile. What is not answered is left to a sweep.
func (s *store) removeEmpty(ctx context.Context, parent string) {
	s.expectOthers(parent, false)
	_ = do(ctx, s, func() error { return s.conn.Delete(parent, -1) })
}

// removeLater removes the nodes of names soon if their queues are empty: the server
// removes the tickets of a session that has ended, and leaves their parents.
func (s *store) removeLater(parents ...string) {
	kvqueue.Go(s.engine, func(ctx context.Context) {
		if !retry.Sleep(ctx, taskPause, nil) {
			return
		}
		ctx, cancel := context.WithTimeout(ctx, taskBound)
		defer cancel()
		_, _ = each(ctx, s, parents, func(parent string) (struct{}, error) { return struct{}{}, s.conn.Delete(parent, -1) })
	})
}

// Processes that end together leave the nodes of names that nobody uses again. One of
// all drivers on a base sweeps those, so often that they are gone a minute after their
// session at the latest: a driver sweeps after sweepEvery and up to half of that
// more, unless another has in the last half of it.
const (
	sweepFirst = 10 * time.Second
	sweepEvery = 24 * time.Second
)

// sweepAll is the background task.
func (s *store) sweepAll(ctx context.Context) {
	for delay := sweepFirst; retry.Sleep(ctx, delay+rand.N(delay/2), nil); delay = sweepEvery {
		bounded, cancel := context.WithTimeout(ctx, time.Minute)
		_ = s.sweep(bounded, time.Now()) // the next sweep does what this one could not
		cancel()
	}
}

// sweep removes the nodes of names whose queue is empty, unless that was done lately:
// the data of the base say when. A wrong clock makes for too many sweeps or too few,
// and nothing else.
func (s *store) sweep(ctx context.Context, now time.Time) error {
	if err := s.logIn(ctx); err != nil {
		return err
	}
	won, err := call(ctx, s, func() (bool, error) {
		data, st, err := s.conn.Get(s.base)
		if err != nil {
			return false, err
		}
		if last, err := strconv.ParseInt(string(data), 10, 64); err == nil && now.Sub(time.UnixMilli(last)).Abs() < sweepEvery/2 {
			return false, nil
		}
		_, err = s.conn.Set(s.base, strconv.AppendInt(nil, now.UnixMilli(), 10), st.Version)
		return err == nil, err
	})
	if err != nil || !won {
		return err
	}
	nodes, err := s.nameNodes(ctx)
	if err != nil {
		return err
	}
	nodes = s.withoutTickets(nodes)
	empty, err := s.emptyOnes(ctx, nodes)
	if err != nil {
		return err
	}
	for i, node := range nodes {
		if _, ok := decode(node); ok && empty[i] {
			s.removeEmpty(ctx, s.base+"/"+node)
		}
	}
	return nil
}

// withoutTickets returns the nodes of the names in which this driver has no ticket.
func (s *store) withoutTickets(nodes []string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ours := make(map[string]bool, len(s.nodes))
	for path := range s.nodes {
		ours[nodeOf(parentOf(path))] = true
	}
	return slices.DeleteFunc(nodes, func(node string) bool { return ours[node] })
}

// nameNodes returns the children of the base: the nodes of names, and perhaps foreign
// ones.
func (s *store) nameNodes(ctx context.Context) ([]string, error) {
	return call(ctx, s, func() ([]string, error) {
		nodes, _, err := s.conn.Children(s.base)
		if errors.Is(err, zk.ErrNoNode) {
			return nil, nil
		}
		return nodes, err
	})
}

// emptyOnes reports for each of the nodes whether it has no children.
func (s *store) emptyOnes(ctx context.Context, nodes []string) ([]bool, error) {
	return each(ctx, s, nodes, func(node string) (bool, error) {
		ok, st, err := s.conn.Exists(s.base + "/" + node)
		return !ok || st.NumChildren == 0, err
	})
}
