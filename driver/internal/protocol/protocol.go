// Package protocol prevents programs of two incompatible versions from using the same
// locks: neither would see the other's holders. The data that a driver keeps in its store
// has a protocol version, a short text. The first driver that uses the store writes it
// there, and every driver compares it with its own before its first request.
//
// Each driver reads it once. If it is removed from the store while programs run, together
// with all other data, the next driver that is opened writes it again.
package protocol

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// A Check is the comparison that one driver makes. Make it with [New].
type Check struct {
	own, where, remedy string

	done atomic.Bool

	mu    sync.Mutex
	turn  chan struct{} // held by the caller that asks the store; replaced if its answer takes long
	asked time.Time     // when it last began to
}

// patience is how long callers wait for the answer to another one.
const patience = time.Second

// New makes the check of a driver that speaks the version own. where says where in
// the store the version is, remedy how to remove it.
func New(own, where, remedy string) *Check {
	return &Check{own: own, where: where, remedy: remedy}
}

// Own is the version that the driver speaks.
func (c *Check) Own() string { return c.own }

// Do returns a [*Mismatch] if the store has another version than the driver's own. It
// calls ask, which reads the version, "" for none. For a request that writes, ask writes
// the driver's own version if there is none, in such a way that concurrent writers all
// read the same one, and returns it. Do calls ask for one caller at a time, and for one more each
// second in which there is no answer, and never again once it was the driver's own version.
func (c *Check) Do(ctx context.Context, ask func(context.Context) (string, error)) error {
	for !c.done.Load() {
		turn, left := c.next()
		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
			if c.done.Load() {
				return nil
			}
			c.mu.Lock()
			c.asked = time.Now()
			c.mu.Unlock()
			return c.compare(ask(ctx))
		case <-time.After(left):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// next returns the turn to wait for, and for how long: the request of the caller that has it may be lost.
func (c *Check) next() (turn chan struct{}, left time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left = patience - time.Since(c.asked)
	if left <= 0 {
		c.turn, c.asked, left = make(chan struct{}, 1), time.Now(), patience
	}
	return c.turn, left
}

func (c *Check) compare(found string, err error) error {
	switch {
	case err != nil:
		return err
	case found == "": // there is nothing to be incompatible with
		return nil
	case found != c.own:
		return &Mismatch{Found: found, check: c}
	}
	c.done.Store(true)
	return nil
}

// A Mismatch says that programs of another version use the same locks.
type Mismatch struct {
	Found string
	check *Check
}

// maxShown bounds how much of a version is shown, since it may be any text.
const maxShown = 100

func (e *Mismatch) Error() string {
	found := e.Found
	if len(found) > maxShown {
		found = found[:maxShown] + "…"
	}
	return fmt.Sprintf("%s says that the locks there are kept by protocol version %q, and this program speaks version %q: "+
		"programs of both would not exclude each other; stop those of the other version and then %s, or use another prefix",
		e.check.where, found, e.check.own, e.check.remedy)
}
