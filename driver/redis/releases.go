package redis

import (
	"context"
	"errors"
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

// While releasesAtOnce requests for releases of a name are under way, others wait for releasesLate at most: not for the time to
// a server that is far away, or does not answer. A request has releasesMost of them.
const (
	releasesAtOnce = 2
	releasesMost   = 100
	releasesLate   = 5 * time.Millisecond
)

// A handOnRelease is sent with others of the same name: those that have waited for a request are the next one. The caller of
// one of them sends it for all.
type handOnRelease struct {
	hold driver.Hold
	turn chan struct{} // its caller is to send all that wait
	done chan error    // gets the result
}

// handOns are the releases of one name.
type handOns struct {
	sending int // how many requests are under way
	waiting []*handOnRelease
}

// releaseWithOthers releases a ticket that hands the lock on.
func (d *Driver) releaseWithOthers(ctx context.Context, h driver.Hold) error {
	r := &handOnRelease{h, make(chan struct{}, 1), make(chan error, 1)}
	if d.waits(r) {
		late := time.NewTimer(releasesLate)
		defer late.Stop()
		select {
		case err := <-r.done:
			return err
		case <-r.turn:
		case <-late.C:
		}
	}
	d.sendTogether(ctx, h.Name)
	select {
	case err := <-r.done:
		if ctx.Err() == nil || !errors.Is(err, errHandOn) {
			return err
		}
	case <-ctx.Done():
	}
	return redisqueue.Ended(ctx, d.listener.Err())
}

// waits adds a release to those that wait to be sent, and reports whether it has to wait for a request that is under way.
func (d *Driver) waits(r *handOnRelease) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.handOns[r.hold.Name]
	if all == nil {
		all = &handOns{}
		d.handOns[r.hold.Name] = all
	}
	all.waiting = append(all.waiting, r)
	return all.sending >= releasesAtOnce
}

// sendTogether sends the releases that wait, unless another caller has, and delivers the results. Then one of those that have
// begun to wait meanwhile has the turn.
func (d *Driver) sendTogether(ctx context.Context, name string) {
	batch := d.takeReleases(name)
	if len(batch) == 0 {
		return
	}
	once, cancel := context.WithTimeout(ctx, handOnBound)
	defer cancel()
	holds := make([]driver.Hold, len(batch))
	for i, r := range batch {
		holds[i] = r.hold
	}
	errs := d.releaseTickets(once, holds)
	d.passTurn(name)
	for i, r := range batch {
		if isContextEnd(once, errs[i]) {
			errs[i] = errHandOn // who waits for it has a context of its own
		}
		r.done <- errs[i]
	}
}

func (d *Driver) takeReleases(name string) []*handOnRelease {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.handOns[name]
	if all == nil || len(all.waiting) == 0 {
		return nil
	}
	n := min(len(all.waiting), releasesMost)
	batch := all.waiting[:n]
	all.waiting = all.waiting[n:]
	all.sending++
	return batch
}

func (d *Driver) passTurn(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.handOns[name]
	all.sending--
	switch {
	case len(all.waiting) > 0:
		select {
		case all.waiting[0].turn <- struct{}{}:
		default: // it has the turn
		}
	case all.sending == 0:
		delete(d.handOns, name)
	}
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
