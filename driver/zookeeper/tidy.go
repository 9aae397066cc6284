package zookeeper

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"
)

// tidy removes the node of a name whose line is empty. Whoever joins it in this
// moment keeps it.
func (d *Driver) tidy(ctx context.Context, parent string) {
	d.setCrowded(parent, false)
	_, err := call(ctx, d, func() (struct{}, error) { return struct{}{}, d.conn.Delete(parent, -1) })
	if err != nil && !answered(err) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.tidyLater(parent)
	}
}

// tidyDelay is how long after the end of a session its nodes are gone.
const tidyDelay = time.Second

// tidyLater removes the node of a name, soon, if its line is empty: the server
// removes a dead session's tickets, and leaves what they stood in. With mu
// held.
func (d *Driver) tidyLater(parent string) {
	d.chores.empty[parent] = struct{}{}
	if !d.chores.tidying {
		d.chores.tidying = d.spawn(d.tidyAll)
	}
}

func (d *Driver) tidyAll() {
	for d.pause(context.Background(), tidyDelay) {
		d.mu.Lock()
		parents := make([]string, 0, len(d.chores.empty))
		for p := range d.chores.empty {
			parents = append(parents, p)
		}
		if len(parents) == 0 {
			d.chores.tidying = false
		}
		clear(d.chores.empty)
		d.mu.Unlock()
		if len(parents) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), choreBound)
		_, _ = each(ctx, d, parents, func(p string) (struct{}, error) {
			d.tidy(ctx, p)
			return struct{}{}, nil
		})
		cancel()
	}
}

// Processes that die together leave names that nobody comes back to. Of all
// drivers on one base, one looks for those, so often that they are gone a minute
// after their session at the latest: a driver does so after sweepEvery and up to
// half of that more, unless another has in the last half of it.
const (
	sweepFirst = 10 * time.Second
	sweepEvery = 24 * time.Second
)

func (d *Driver) sweepAfter(delay time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delay += rand.N(delay / 2)
	d.sweeper = time.AfterFunc(delay, func() {
		d.background(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_ = d.sweep(ctx, time.Now()) // next time, then
			d.sweepAfter(sweepEvery)
		})
	})
	if d.chores.closed {
		d.sweeper.Stop()
	}
}

// sweep removes the nodes of names whose line is empty, if nobody has done so
// lately: the data of the base say when. A wrong clock makes for too many sweeps
// or too few, and nothing else.
func (d *Driver) sweep(ctx context.Context, now time.Time) error {
	if err := d.ready(ctx); err != nil {
		return err
	}
	won, err := call(ctx, d, func() (bool, error) {
		data, st, err := d.conn.Get(d.base)
		if err != nil {
			return false, err
		}
		if last, err := strconv.ParseInt(string(data), 10, 64); err == nil && now.Sub(time.UnixMilli(last)).Abs() < sweepEvery/2 {
			return false, nil
		}
		_, err = d.conn.Set(d.base, strconv.AppendInt(nil, now.UnixMilli(), 10), st.Version)
		return err == nil, err
	})
	if err != nil || !won {
		return err
	}
	_, err = d.occupied(ctx, true)
	return err
}
