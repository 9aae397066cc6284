// Package queues reads all queues of a store, for the command line and for the console.
package queues

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockerproject/locker"
)

// A Source is a store whose queues can be read, such as a *locker.Client.
type Source interface {
	List(ctx context.Context) ([]string, error)
	Inspect(ctx context.Context, name string) (locker.Queue, error)
}

// A Reading is a queue as it was at a time.
type Reading struct {
	locker.Queue
	At time.Time
}

// Tally counts the holders and the waiters of a queue, and returns the waiter that has waited longest, if there is
// one whose store says since when.
func Tally(q locker.Queue) (holders, waiters int, longest locker.Ticket) {
	for _, t := range q.Tickets {
		switch {
		case t.Held:
			holders++
			continue
		case !t.Since.IsZero() && (longest.Since.IsZero() || t.Since.Before(longest.Since)):
			longest = t
		}
		waiters++
	}
	return holders, waiters, longest
}

// atOnce is how many queues are asked for at a time.
const atOnce = 16

// Read reads the queues whose names begin with prefix, in the order of their names. It
// returns all or none: half a picture would look like locks that were released. A queue that
// has become empty meanwhile is left out, and so is what another program has put there and is
// no lock.
func Read(ctx context.Context, s Source, prefix string) ([]Reading, error) {
	names, err := s.List(ctx)
	if err != nil {
		return nil, err
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	all := make([]Reading, len(names))
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i, name := range names {
		group.Go(func() (err error) {
			all[i].Queue, err = s.Inspect(ctx, name)
			all[i].At = time.Now()
			if errors.Is(err, locker.ErrInvalidName) {
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(r Reading) bool { return len(r.Tickets) == 0 }), nil
}
