package redlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisline"
)

// ticket is what this process knows of one that it has asked for.
type ticket struct {
	r      driver.Request
	key    string
	bucket string
	record string
	number uint64       // final once it stands in line, or holds, on a majority
	round  atomic.Int64 // of the last question; one goroutine at a time asks
	until  time.Time    // held: the end of the lease on a majority; Driver.mu guards it
}

// newTicket is of a request without its Joined: what that hangs on to, the whole
// call of Acquire, would live as long as the lease.
func (d *Driver) newTicket(r driver.Request) *ticket {
	r.Joined = nil
	return &ticket{r: r, key: d.keys.Main(r.Name), bucket: bucket(r.Name), record: redisline.Record(d.channel, r)}
}

// Acquire implements driver.Driver. Without contention it is one request to each
// node, all at once, and with contention two: to join and, when granted, to
// confirm.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if d.isClosed() {
		return driver.Grant{}, driver.ErrClosed
	}
	if err := d.mayUse(ctx, r.Name, true); err != nil {
		return driver.Grant{}, driver.NoTicket(err) // none was asked for before
	}
	t := d.newTicket(r)
	if !r.Wait {
		return d.try(ctx, t, splits)
	}
	if d.listening() < d.quorum {
		// Subscribe before enqueueing, so that the grant cannot be missed. Perhaps
		// there is no need to wait.
		g, err := d.try(ctx, t, 0)
		if !errors.Is(err, driver.ErrNotAcquired) {
			return g, err
		}
		if err := d.await(ctx); err != nil {
			return driver.Grant{}, err
		}
	}
	return d.join(ctx, t, r.Joined)
}

// errForeign says that a key of another type than ours is where the holder's
// would be, such as the hash of a lock of Redisson.
var errForeign = fmt.Errorf("%w: another library's lock, or other data that is not a string, is at its key", driver.ErrNotAcquired)

// splits is how often one who cannot wait asks again when nobody got a majority.
const splits = 5

// try asks for a grant now.
func (d *Driver) try(ctx context.Context, t *ticket, again int) (driver.Grant, error) {
	number, origin := d.numbers.guess(), byte(guessed)
	for {
		v, err := d.vote(ctx, t, number, orLeave, origin)
		if err != nil {
			return driver.Grant{}, err
		}
		switch v.verdict {
		case granted:
			return d.grant(t, v), nil
		case gone:
			return driver.Grant{}, driver.ErrLost
		case unreachable:
			return driver.Grant{}, v.failure()
		case notNow:
			err := d.leave(ctx, t, v)
			if errors.Is(err, driver.ErrNotAcquired) && v.foreign() {
				err = errForeign
			}
			return driver.Grant{}, err
		case tooSmall, familiar:
			number, origin = v.next()
			continue
		}
		// Split: several ask at once and none has a majority.
		err = d.leave(ctx, t, v)
		if again--; again < 0 || !errors.Is(err, driver.ErrNotAcquired) {
			return driver.Grant{}, err
		}
		if !d.pause(ctx, time.Millisecond+rand.N(4*time.Millisecond)) { //nolint:gosec // no secret
			return driver.Grant{}, context.Cause(ctx)
		}
		number, origin = v.next()
	}
}

// pause waits for a moment; false: something has ended.
func (d *Driver) pause(ctx context.Context, moment time.Duration) bool {
	t := time.NewTimer(moment)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-d.closing:
	}
	return false
}

// leave takes back what the nodes have given that were too few. It waits for
// those that have answered; the others follow.
func (d *Driver) leave(ctx context.Context, t *ticket, v *vote) error {
	sure, perhaps := v.given()
	for _, n := range d.nodes {
		if perhaps&(1<<n.index) != 0 {
			d.release(n, t.key, t.r.ID, t.r.TTL)
		}
	}
	err := d.ask(ctx, newPoll(func(int, any, error) bool { return false }), func(n *node) *call {
		if sure&(1<<n.index) == 0 {
			return nil
		}
		return d.releaseCall(n, t.key, t.r.ID)
	})
	if err != nil {
		return err
	}
	return driver.ErrNotAcquired
}

// patience is for how many timeouts a join is asked again of nodes that are
// silent: they may be slow, and where nobody listens an error comes at once.
const patience = 2

// join takes a ticket and waits for its grant.
func (d *Driver) join(ctx context.Context, t *ticket, joined func()) (driver.Grant, error) {
	w := d.register(t)
	defer d.depart(w)
	number, origin := d.numbers.guess(), byte(guessed)
	begun := time.Now()
	for {
		v, err := d.vote(ctx, t, number, orWait, origin)
		if err != nil {
			return driver.Grant{}, err
		}
		if v.verdict == unreachable && v.silent() && time.Since(begun) < patience*d.timeout {
			continue // it may stand in line already
		}
		switch v.verdict {
		case granted:
			return d.grant(t, v), nil
		case inQueue:
			t.number = number
			d.yield(w, v)
			d.enter(w, v)
			if joined != nil {
				joined()
			}
			return d.wait(ctx, w)
		case tooSmall, familiar:
			number, origin = v.next()
		case gone:
			return driver.Grant{}, driver.ErrLost
		default:
			return driver.Grant{}, v.failure()
		}
	}
}

// grant notes that a ticket holds.
func (d *Driver) grant(t *ticket, v *vote) driver.Grant {
	t.number = v.number
	d.mu.Lock()
	t.until = v.asked.Add(t.r.TTL)
	d.held[t.r.ID] = t
	d.mu.Unlock()
	v.repairLate()
	return driver.Grant{Token: v.number, Asked: v.asked}
}

// yield takes back a hold that has no majority: the ticket waits again there,
// and whoever is first is told.
func (d *Driver) yield(w *waiter, v *vote) {
	sure, perhaps := v.given()
	for _, n := range d.nodes {
		if (sure|perhaps)&(1<<n.index) != 0 {
			d.yieldOn(n, w, v.round)
		}
	}
}

func (d *Driver) yieldOn(n *node, w *waiter, round int64) {
	n.add(&call{
		script: d.keys.Script(redisline.RedlockYield),
		keys:   []string{w.t.key},
		args:   []any{w.t.r.ID, round},
		id:     w.t.r.ID,
		done: func(v any, err error) {
			if err == nil && v == int64(1) {
				d.ready(w, n.index, false)
			}
		},
	})
}

// listen begins to listen, in the background: nodes tell of breaks, and whoever
// listens knows why a node is not reached.
func (d *Driver) listen() {
	for _, n := range d.nodes {
		n.listener.Start()
	}
}

// listening counts the nodes that can tell this process of a grant.
func (d *Driver) listening() int {
	up := 0
	for _, n := range d.nodes {
		if n.listener.Up() {
			up++
		}
	}
	return up
}

// await waits until a majority can tell this process of a grant, and a moment
// longer for the others.
func (d *Driver) await(parent context.Context) error {
	ctx, cancel := context.WithCancelCause(parent)
	defer cancel(nil)
	results := make(chan error, len(d.nodes))
	for _, n := range d.nodes {
		if !d.begin() {
			return driver.ErrClosed
		}
		go func() {
			defer d.work.Done()
			results <- n.listener.Await(ctx, d.closing)
		}()
	}
	errs := make([]error, len(d.nodes))
	up, failed := 0, 0
	moment := time.NewTimer(time.Hour)
	defer moment.Stop()
	for up+failed < len(d.nodes) {
		select {
		case err := <-results:
			if err == nil {
				up++
			} else {
				errs[failed] = err
				failed++
			}
		case <-moment.C:
			return nil
		}
		if up == d.quorum {
			moment.Reset(50 * time.Millisecond)
		}
		if failed > len(d.nodes)-d.quorum {
			if d.isClosed() {
				return driver.ErrClosed
			}
			if parent.Err() != nil {
				return redisline.Ended(parent, d.deaf())
			}
			return d.deaf()
		}
	}
	return nil
}
