package locker

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
	"unsafe"

	"github.com/lockerproject/locker/driver"
)

// Client is the Locker over a driver. The zero Client is not usable; see New
// and Open.
type Client struct {
	*core
	removals *removals
	leases   *leases
	defaults []Option

	closed chan struct{} // closed when Close is done

	process string // the default owner
}

var _ Locker = (*Client)(nil)

// core is what the layers of a Client share. Nothing of it changes after New, except in
// background and waits, which have mutexes of their own.
type core struct {
	d         driver.Driver
	store     string // how errors name the store
	clock     *clock
	tasks     *tasks
	observers []func(context.Context, Event)

	background background // events that no call delivers
	waits      waits      // calls that are queued

	ends sync.WaitGroup // goroutines that have ended a lease and notify handles and observers of it

	margin         time.Duration // the safety margin, if marginSet
	marginSet      bool
	answerTimeout  time.Duration
	releaseTimeout time.Duration
	invalid        error // ErrInvalidOption if an option of the Client is
}

// marginOf is the safety margin of a lease of the given length.
func (c *core) marginOf(length time.Duration) time.Duration {
	if c.marginSet {
		return c.margin
	}
	return length / 100
}

// storeTTL is the TTL to ask the store for: ttl, or the store's minimum if that is more.
func (c *core) storeTTL(ttl time.Duration) time.Duration {
	return max(ttl, driver.BoundsOf(c.d, ttl).MinTTL)
}

// New makes a Client over a driver, which it closes when it is closed. It does not
// ask the store; see Ping. It panics when d is nil. Invalid values of client
// options are reported as ErrInvalidOption by every call that asks the store.
func New(d driver.Driver, opts ...ClientOption) *Client {
	if d == nil {
		panic("locker: New: the driver is nil")
	}
	c := &Client{closed: make(chan struct{}), core: &core{
		d: d, store: storeName(d), clock: newClock(suspended), tasks: newTasks(),
		answerTimeout: DefaultAnswerTimeout, releaseTimeout: DefaultReleaseTimeout,
	}}
	c.removals = newRemovals(c.core)
	c.leases = newLeases(c.core, c.removals)
	for _, o := range opts {
		if o != nil {
			o(c)
		}
	}
	c.invalid = c.checkOptions()
	host, _ := os.Hostname()
	c.process = fmt.Sprintf("%.64s/%d/%s", host, os.Getpid(), newID()[:8])
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

// newID makes the ID of a ticket, unique for ever: 120 random bits. They are drawn for each
// ticket, since two processes may be clones of one snapshot (of a VM, by CRIU).
func newID() string {
	const alphabet = "abcdefghijklmnopqrstuvwxyz234567"
	id := make([]byte, 24)
	random := id[9:]         // each byte is read before a character takes its place
	_, _ = rand.Read(random) // never fails, by its documentation
	for i := range 3 {
		five := random[5*i : 5*i+5] // 40 bits, for eight characters
		bits := uint64(binary.LittleEndian.Uint32(five)) | uint64(five[4])<<32
		for j := range 8 {
			id[8*i+j] = alphabet[bits>>(5*j)%32]
		}
	}
	return unsafe.String(&id[0], len(id)) // without a copy: nobody changes id any more
}

// Acquire implements Locker.
func (c *Client) Acquire(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	k, err := c.acquire(ctx, name, false, opts)
	if err != nil {
		return nil, c.fail("acquire", name, err)
	}
	return k, nil
}

// TryAcquire implements Locker.
func (c *Client) TryAcquire(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	k, err := c.acquire(ctx, name, true, opts)
	if err != nil {
		return nil, c.fail("try to acquire", name, err)
	}
	return k, nil
}

// Store returns how the driver names itself, without credentials, as in errors and
// events.
func (c *Client) Store() string { return c.store }

// Ping makes one cheap request to the store. Nil means that the store answers and
// that the rights suffice to acquire and release; ErrUnavailable means that it does
// not answer, or refuses everybody. Ping is meant for readiness probes: New, and
// Open with most drivers, do not ask the store.
func (c *Client) Ping(ctx context.Context) error {
	return c.fail("ping", "", c.ask(ctx, func(ctx context.Context) error {
		if p, ok := c.d.(driver.Pinger); ok {
			return p.Ping(ctx)
		}
		_, err := c.d.Inspect(ctx, pingName)
		return err
	}))
}

// ServerVersion returns the name and the version of the store's software as the
// store reports them, for people: "Redis 7.0.15". ErrUnsupported means that this
// store does not report them.
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

// Close implements Locker. It releases what is held, and tries once more to remove
// the tickets whose removal the store has not confirmed, all within the bound for a
// release (WithReleaseTimeout). With nothing to release Close is immediate. Close does
// not remove a lock within its minimum hold (WithMinHold). It shortens the lease to the
// rest of that hold, if the store can ([driver.Shortener]) and answers; otherwise the
// lease ends by itself.
func (c *Client) Close() error {
	if !c.tasks.close() {
		<-c.closed
		return nil
	}
	until := time.Now().Add(c.releaseTimeout)
	held := c.leases.close()
	defer close(c.closed)
	defer deliverEach(held, (*lease).deliver)
	c.removals.startClosing()
	err := c.removeAll(held, until)
	waitForAll(&c.tasks.group, until)
	c.removals.waitEmpty(until)
	c.tasks.stop()
	c.tasks.group.Wait()
	c.removals.group.Wait()
	waitForAll(&c.ends, until)
	c.background.wait(until)
	return errors.Join(err, c.fail("close", "", c.d.Close()))
}

// releaseParallel is how many locks Close, and Release and Extend of a group, ask for at a
// time.
const releaseParallel = 64

// removeAll removes the tickets of leases that Close has ended. A lock that was
// lost is no failure of Close.
func (c *Client) removeAll(all []*lease, until time.Time) error {
	return tryInParallel(len(all), releaseParallel, func(i int) error {
		l := all[i]
		err := c.leases.remove(context.Background(), l.context(), l, until)
		return c.fail("release", l.hold.Name, ignore(err, ErrLost))
	})
}
