package locker

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Client is the Locker over a driver. The zero Client is not usable; see New
// and Open.
type Client struct {
	*core
	leases   *leases
	removals *removals
	owners   *owners
	defaults []Option

	process string // the default owner
	idBase  string // what the ticket IDs of this Client begin with
	idSeq   atomic.Uint64
}

var _ Locker = (*Client)(nil)

// New makes a Client over a driver, which it closes when it is closed. It
// does not reach the store: Ping does. It panics when d is nil. A client option
// that makes no sense is ErrInvalidOption from every acquisition.
func New(d driver.Driver, opts ...ClientOption) *Client {
	if d == nil {
		panic("locker: New: the driver is nil")
	}
	c := &Client{
		core: &core{
			d: d, store: storeName(d), clock: newClock(suspended), tasks: newTasks(),
			answerTimeout: DefaultAnswerTimeout, releaseTimeout: DefaultReleaseTimeout,
		},
		owners: newOwners(),
	}
	c.removals = newRemovals(c.core)
	c.leases = newLeases(c.core, c.removals)
	for _, o := range opts {
		if o != nil {
			o(c)
		}
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails, by its documentation
	c.idBase = hex.EncodeToString(id[:]) + "-"
	host, _ := os.Hostname()
	c.process = fmt.Sprintf("%.64s/%d/%s", host, os.Getpid(), c.idBase[:8])
	if n, ok := d.(driver.LossNotifier); ok {
		n.NotifyLoss(c.leases.pushed)
	}
	return c
}

// storeName is how errors name the store.
func storeName(d driver.Driver) string {
	if s, ok := d.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", d)
}

// Store returns how the driver names itself, without credentials: as in errors and
// events.
func (c *Client) Store() string { return c.store }

// newID makes the ID of a ticket, unique for ever.
func (c *Client) newID() string {
	var buf [40]byte
	b := append(buf[:0], c.idBase...)
	return string(strconv.AppendUint(b, c.idSeq.Add(1), 36))
}

// Ping asks the store for one cheap answer. Nil says that the store answers and
// that the rights suffice to acquire and release; ErrUnavailable that it
// does not answer or refuses everybody. It is meant for readiness probes: New and
// Open reach no store.
func (c *Client) Ping(ctx context.Context) error {
	return c.fail("ping", "", c.ask(ctx, func(ctx context.Context) error {
		if p, ok := c.d.(driver.Pinger); ok {
			return p.Ping(ctx)
		}
		_, err := c.d.Inspect(ctx, "locker/ping")
		return err
	}))
}

// ServerVersion returns the name and the version of the store's software, as it
// tells them, for people: "Redis 7.0.15". ErrUnsupported says that this store does not.
func (c *Client) ServerVersion(ctx context.Context) (string, error) {
	v, ok := c.d.(driver.ServerVersioner)
	if !ok {
		return "", c.fail("version", "", ErrUnsupported)
	}
	var version string
	err := c.ask(ctx, func(ctx context.Context) (err error) {
		version, err = v.ServerVersion(ctx)
		return err
	})
	return version, c.fail("version", "", err)
}

// Close implements Locker. What is held is released, and what the store has not
// confirmed yet gets a last try, all within the bound for a release
// (WithReleaseTimeout); with nothing to release Close is immediate. A lock
// within its minimum hold (WithMinHold) is left to its lease.
func (c *Client) Close() error {
	if !c.tasks.close() {
		return nil
	}
	until := time.Now().Add(c.releaseTimeout)
	held := c.leases.close()
	c.removals.hurry()
	errs := c.removeAll(held, until)
	c.tasks.wait(time.Until(until))
	c.removals.drain(until)
	c.tasks.stop()
	c.tasks.group.Wait()
	c.removals.group.Wait()
	if err := c.d.Close(); err != nil {
		errs = append(errs, c.fail("close", "", err))
	}
	return errors.Join(errs...)
}

// atOnce is how many locks are released at a time, by Close and by the Release of
// a group.
const atOnce = 64

// removeAll removes leases from the store and returns what went wrong. A lock
// that was lost is nothing that Close could still release.
func (c *Client) removeAll(all []*lease, until time.Time) []error {
	var (
		mu   sync.Mutex
		errs []error
	)
	inParallel(len(all), atOnce, func(i int) {
		err := c.leases.remove(all[i].context(), all[i], until)
		if err != nil && !errors.Is(err, ErrLost) {
			mu.Lock()
			defer mu.Unlock()
			errs = append(errs, c.fail("release", all[i].hold.Name, err))
		}
	})
	if len(errs) > 1 {
		return []error{&several{errs: errs}}
	}
	return errs
}

// inParallel runs f(0) … f(n-1), at most limit at a time, and waits for all.
func inParallel(n, limit int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var group sync.WaitGroup
	slots := make(chan struct{}, limit)
	for i := range n {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			f(i)
		})
	}
	group.Wait()
}
