package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
)

// handOnBound is how long a release that hands the lock on waits for its answer. Then it has failed, and the core
// repeats it: the server grants the next ticket when it has it. The waiter would not be handed the lock if its own request had
// taken as long.
const handOnBound = 500 * time.Millisecond

var errHandOn = driver.Unavailable(fmt.Errorf("redis: no answer to the release within %v", handOnBound))

// A request for releases has releasesMost at most, and holds others of its name back for releasesLate: not for the time
// to a server that is far away, or does not answer.
const (
	releasesMost = 100
	releasesLate = 5 * time.Millisecond
)

// A handOnRelease is sent with others of the same name: those that are asked for while a request is under way, and
// not late, are the next request.
type handOnRelease struct {
	hold driver.Hold
	done chan error // gets the result
}

// releaseWithOthers releases a ticket that hands the lock on.
func (d *Driver) releaseWithOthers(ctx context.Context, h driver.Hold) error {
	r := handOnRelease{h, make(chan error, 1)}
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
func (d *Driver) addRelease(r handOnRelease) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	waiting, sending := d.handOns[r.hold.Name]
	if !sending && !d.life.Go(func() { d.sendReleases(r.hold.Name) }) {
		return false
	}
	d.handOns[r.hold.Name] = append(waiting, r)
	return true
}

// sendReleases sends the releases of a name until none is left.
func (d *Driver) sendReleases(name string) {
	for batch := d.takeReleases(name); len(batch) > 0; batch = d.takeReleases(name) {
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			d.sendTogether(batch)
		}()
		select {
		case <-answered:
		case <-time.After(releasesLate):
		}
	}
}

// sendTogether sends one request, and delivers the results.
func (d *Driver) sendTogether(batch []handOnRelease) {
	ctx, cancel := context.WithTimeout(context.Background(), handOnBound)
	defer cancel()
	holds := make([]driver.Hold, len(batch))
	for i, r := range batch {
		holds[i] = r.hold
	}
	for i, err := range d.releaseTickets(ctx, holds) {
		if isContextEnd(ctx, err) {
			err = errHandOn // it is not the caller's context that has ended
		}
		batch[i].done <- err
	}
}

// takeReleases returns the next releases of a name. If there are none, none is under way any more.
func (d *Driver) takeReleases(name string) []handOnRelease {
	d.mu.Lock()
	defer d.mu.Unlock()
	waiting := d.handOns[name]
	n := min(len(waiting), releasesMost)
	if n == 0 {
		delete(d.handOns, name)
	} else {
		d.handOns[name] = waiting[n:]
	}
	return waiting[:n]
}

// releaseTickets sends one request, and returns the result of each release.
func (d *Driver) releaseTickets(ctx context.Context, holds []driver.Hold) []error {
	c := d.releaseCall(holds)
	v, err := d.do(ctx, c)
	var found []int64
	if n, one := v.(int64); one && len(holds) == 1 {
		found = []int64{n}
	} else if err == nil {
		found, err = redisqueue.Ints("release", v, len(holds))
	}
	errs := make([]error, len(holds))
	for i := range holds {
		if err != nil {
			errs[i] = err
		} else if found[i] == 0 && c.Sent() < 2 { // else an earlier sending may have removed it
			errs[i] = driver.ErrLost
		}
	}
	if err == nil {
		d.releaseAnswered(holds)
	}
	return errs
}

func (d *Driver) releaseCall(holds []driver.Hold) *redisqueue.Call {
	script := redisqueue.Release
	if len(holds) > 1 {
		script = redisqueue.Releases
	}
	args := make([]any, 0, 2*len(holds))
	for _, h := range holds {
		args = append(args, h.ID, d.unanswered.Requests(h.ID))
	}
	if len(holds) == 1 && args[1] == 0 {
		args = args[:1]
	}
	c := d.keys.Call(script, d.keys.All(d.keys.Main(holds[0].Name)), args...)
	c.SetArg(0, c.Ticket(holds[0].ID, false))
	return c
}
