package lockertest

import (
	"context"
	"errors"
	"slices"

	"github.com/lockerproject/locker/driver"
)

// answer sets the answers to the next acquisitions of name.
func (d *faulty) answer(name string, errs []error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.answers[name] = slices.Clone(errs)
}

// scripted takes the answer to the next acquisition of name; nil: the store answers.
func (d *faulty) scripted(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	errs := d.answers[name]
	if len(errs) == 0 {
		return nil
	}
	d.answers[name] = errs[1:]
	return errs[0]
}

// refuse answers a request with err, as a store would. For ErrNotAcquired a request
// that waits is queued, until ctx ends.
func refuse(ctx context.Context, r driver.Request, err error) error {
	if !r.Wait || !errors.Is(err, driver.ErrNotAcquired) {
		return err
	}
	if r.Joined != nil {
		r.Joined()
	}
	<-ctx.Done()
	return context.Cause(ctx)
}
