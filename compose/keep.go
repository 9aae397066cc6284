package compose

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

// keep renews a granted part while the others are waited for. It ends the acquisition
// if the part is lost, or cannot be renewed before its lease is over.
func (a *acquisition) keep(ctx context.Context, i int) {
	for {
		g, length := a.part(i)
		if !retry.Sleep(ctx, max(time.Until(g.Asked.Add(length/3)), length/20), nil) {
			return
		}
		err := a.renew(ctx, i, length/3)
		if g, length = a.part(i); err != nil && time.Since(g.Asked) >= length {
			err = fmt.Errorf("%w: not renewed in time: %w", driver.ErrLost, err)
		}
		if ctx.Err() == nil && errors.Is(err, driver.ErrLost) {
			a.cancel(err)
			return
		}
	}
}

// refresh renews the parts that were granted a while ago, when all parts are granted,
// because the lease of the whole counts from the oldest. It leaves a store that does
// not answer to the next renewal.
func (a *acquisition) refresh() error {
	errs := make([]error, len(a.grants))
	var group sync.WaitGroup
	for i := range a.grants {
		if g, length := a.part(i); i < len(a.grants)-1 && time.Since(g.Asked) > length/10 {
			group.Go(func() { errs[i] = a.renew(a.ctx, i, min(length/6, time.Second)) })
		}
	}
	group.Wait()
	if err := errors.Join(errs...); errors.Is(err, driver.ErrLost) {
		return err
	}
	return nil
}

// part is the grant of one part and the length of its lease, from Asked.
func (a *acquisition) part(i int) (driver.Grant, time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	g := a.grants[i]
	return g, shorter(shorter(a.r.TTL, g.TTL), g.Claim)
}

// renew renews one part. A provisional lease gets its whole length.
func (a *acquisition) renew(ctx context.Context, i int, bound time.Duration) error {
	g, _ := a.part(i)
	asked := time.Now()
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	if err := a.m.parts[i].Renew(ctx, a.r.Hold(g.Token), a.r.TTL); err != nil {
		return fmt.Errorf("%s: %w", nameOf(a.m.parts[i]), err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.grants[i].Asked, a.grants[i].Claim = asked, 0
	return nil
}
