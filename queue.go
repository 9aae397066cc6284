package locker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/marked"
)

// Queue is the queue of a lock, in order: first the holders, then the waiters. If callers give
// different limits, a waiter with a small one may be ahead of a holder with a greater one.
type Queue struct {
	Name    string
	Tickets []Ticket
}

// Ticket is one entry of a Queue. Since is by the store's clock. etcd, Consul and ZooKeeper do
// not store a grant: there it is the time of queueing for a holder, too.
type Ticket struct {
	Token     uint64 // orders the queue, and is the fencing token
	Owner     string
	Note      string
	Shared    bool
	Limit     int // of a semaphore; 0: any number
	Held      bool
	Since     time.Time     // of the grant or, for a waiter, of queueing
	Remaining time.Duration // of the holder's lease; 0 for a waiter
}

// Inspect implements Locker.
func (c *Client) Inspect(ctx context.Context, name string) (Queue, error) {
	if err := checkName(name); err != nil {
		return Queue{}, c.fail("inspect", name, err)
	}
	var ts []driver.Ticket
	err := c.ask(ctx, func(ctx context.Context) (err error) {
		ts, err = c.d.Inspect(ctx, name)
		return err
	})
	if err != nil {
		return Queue{}, c.fail("inspect", name, err)
	}
	q := Queue{Name: name, Tickets: make([]Ticket, 0, len(ts))}
	for _, t := range ts {
		q.Tickets = append(q.Tickets, Ticket{
			Token: t.Token, Owner: t.Owner, Note: t.Note, Shared: t.Shared, Limit: t.Limit,
			Held: t.Held, Since: t.Since, Remaining: t.Remaining,
		})
	}
	return q, nil
}

// List returns the names that somebody holds or waits for, sorted. It is for people
// and tools: on most stores it reads everything under the prefix. ErrUnsupported
// means that the store cannot list.
func (c *Client) List(ctx context.Context) ([]string, error) {
	lister, ok := c.d.(driver.Lister)
	if !ok {
		return nil, c.fail("list", "", ErrUnsupported)
	}
	var names []string
	err := c.ask(ctx, func(ctx context.Context) (err error) {
		names, err = lister.List(ctx)
		return err
	})
	slices.Sort(names)
	return slices.Compact(names), c.fail("list", "", err)
}

// Break removes the ticket with the given token from the queue of name, whoever owns
// it. The holder is notified if the store can push; otherwise it notices at its next
// renewal. Until then two may believe that they hold the lock, and only the fencing
// token keeps them apart. ErrLost means that no such ticket is queued.
func (c *Client) Break(ctx context.Context, name string, token uint64) error {
	if err := checkName(name); err != nil {
		return c.fail("break", name, err)
	}
	breaker, ok := c.d.(driver.Breaker)
	if !ok {
		return c.fail("break", name, ErrUnsupported)
	}
	err := c.ask(ctx, func(ctx context.Context) error { return breaker.Break(ctx, name, token) })
	if errors.Is(err, ErrLost) {
		err = &marked.Error{Err: fmt.Errorf("no ticket with token %d is queued", token), Sentinel: ErrLost}
	}
	return c.fail("break", name, err)
}
