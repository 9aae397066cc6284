package command

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/figures"
)

// measureAlone acquires and releases one name for a while.
func measureAlone(ctx context.Context, c *locker.Client, length time.Duration) (u uncontended, err error) {
	name := "locker bench " + rand.Text()
	if err := cycle(ctx, c, name); err != nil { // makes connections and sessions
		return u, err
	}
	var took []time.Duration
	begun := time.Now()
	for time.Since(begun) < length {
		at := time.Now()
		if err := cycle(ctx, c, name); err != nil {
			return u, err
		}
		took = append(took, time.Since(at))
	}
	passed := time.Since(begun).Seconds()
	return uncontended{
		Seconds: passed, Cycles: len(took), Rate: float64(len(took)) / passed,
		P50: seconds(figures.Percentile(took, 50)), P99: seconds(figures.Percentile(took, 99)),
	}, nil
}

func cycle(ctx context.Context, c *locker.Client, name string) error {
	k, err := c.Acquire(ctx, name)
	if err != nil {
		return err
	}
	return k.Release(ctx)
}

// measureContended lets the clients acquire and release one name for a while.
func measureContended(ctx context.Context, cs []*locker.Client, length time.Duration) (contended, error) {
	var group errgroup.Group
	for _, c := range cs { // makes connections and sessions
		group.Go(func() error { return cycle(ctx, c, "locker bench "+rand.Text()) })
	}
	if err := group.Wait(); err != nil {
		return contended{}, err
	}
	name := "locker bench " + rand.Text()
	s, err := figures.Race{
		Clients: len(cs), Settle: length / 4, Length: length - length/4,
		Acquire: func(ctx context.Context, i int) (func(context.Context) error, error) {
			k, err := cs[i].Acquire(ctx, name)
			if err != nil {
				return nil, err
			}
			return k.Release, nil
		},
	}.Run(ctx)
	if err != nil {
		return contended{}, err
	}
	if s.Grants == 0 {
		return contended{}, errors.New("nobody was granted the lock twice in this time: measure for longer, or with fewer clients")
	}
	return contended{
		Clients: len(cs), Seconds: s.Took.Seconds(), Grants: s.Grants, Rate: float64(s.Grants) / s.Took.Seconds(),
		P50: seconds(figures.Percentile(s.HandOffs, 50)), P99: seconds(figures.Percentile(s.HandOffs, 99)),
		Jain: figures.Jain(s.Counts),
	}, nil
}
