package redis

import (
	"context"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
)

// releaseAgain is after how long releases that hand the lock over are sent again, first, and twice that each time up to
// Liveness: the server grants the next ticket when it has them.
const releaseAgain = 300 * time.Millisecond

// releasesMost is how many tickets one request releases.
const releasesMost = 100

// A release that hands the lock over is sent with others of the same name: one request is under way at a time, and
// the next one releases all tickets whose release was asked for meanwhile.
type release struct {
	ctx  context.Context //nolint:containedctx // of the caller: when it has ended, the release is not sent again
	hold driver.Hold
	sent int        // how often
	done chan error // gets the result
}

// releaseWithOthers releases a ticket.
func (d *Driver) releaseWithOthers(ctx context.Context, h driver.Hold) error {
	r := &release{ctx: ctx, hold: h, done: make(chan error, 1)}
	if !d.addRelease(r) {
		return driver.ErrClosed
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		return redisqueue.Ended(ctx, d.listener.Err())
	}
}

// addRelease has a release sent, unless the driver is closed.
func (d *Driver) addRelease(r *release) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	waiting, sending := d.releases[r.hold.Name]
	if !sending && !d.life.Go(func() { d.sendReleases(r.hold.Name) }) {
		return false
	}
	d.releases[r.hold.Name] = append(waiting, r)
	return true
}

// sendReleases sends the releases of a name until none is left.
func (d *Driver) sendReleases(name string) {
	var batch []*release
	for patience := releaseAgain; ; {
		if batch = d.moreReleases(name, batch); len(batch) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		errs, err := d.releaseTickets(ctx, batch)
		late := err != nil && ctx.Err() != nil
		cancel()
		if late {
			patience = min(2*patience, redisqueue.Liveness)
			continue
		}
		for i, r := range batch {
			r.done <- errs[i]
		}
		batch, patience = nil, releaseAgain
	}
}

// moreReleases returns the releases of a batch whose callers still wait, and those that were asked for meanwhile. If
// there are none, no request for the name is under way any more.
func (d *Driver) moreReleases(name string, batch []*release) []*release {
	d.mu.Lock()
	defer d.mu.Unlock()
	var next, rest []*release
	for _, r := range append(batch, d.releases[name]...) {
		switch {
		case r.ctx.Err() != nil:
		case len(next) < releasesMost:
			next = append(next, r)
		default:
			rest = append(rest, r)
		}
	}
	d.releases[name] = rest
	if len(next) == 0 {
		delete(d.releases, name)
	}
	return next
}

// releaseTickets sends one request, and returns the result of each release, and why the request has failed, if it has.
func (d *Driver) releaseTickets(ctx context.Context, batch []*release) ([]error, error) {
	c := d.releaseCall(batch)
	v, err := d.do(ctx, c)
	var found []int64
	if n, one := v.(int64); one && len(batch) == 1 {
		found = []int64{n}
	} else if err == nil {
		found, err = redisqueue.Ints("release", v, len(batch))
	}
	errs := make([]error, len(batch))
	for i, r := range batch {
		r.sent += c.Sent()
		if err != nil {
			errs[i] = err
		} else if found[i] == 0 && r.sent < 2 { // else an earlier sending may have removed it
			errs[i] = driver.ErrLost
		}
	}
	if err == nil {
		d.released(batch)
	}
	return errs, err
}

func (d *Driver) releaseCall(batch []*release) *redisqueue.Call {
	script, first := redisqueue.Release, batch[0].hold
	if len(batch) > 1 {
		script = redisqueue.Releases
	}
	args := make([]any, 0, 2*len(batch))
	for _, r := range batch {
		args = append(args, r.hold.ID, d.unanswered.Requests(r.hold.ID))
	}
	if len(batch) == 1 && args[1] == 0 {
		args = args[:1]
	}
	c := d.keys.Call(script, d.keys.All(d.keys.Main(first.Name)), args...)
	c.SetArg(0, c.Ticket(first.ID, false))
	return c
}
