package compose

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// key identifies a ticket (D1): an ID under another name is another ticket.
type key struct{ name, id string }

func keyOf(h driver.Hold) key { return key{h.Name, h.ID} }

// nameOf is the name of a driver in errors.
func nameOf(d driver.Driver) string {
	if s, ok := d.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", d)
}

// ping does what the core does for a driver without Ping.
func ping(ctx context.Context, d driver.Driver) error {
	if p, ok := d.(driver.Pinger); ok {
		return p.Ping(ctx)
	}
	_, err := d.Inspect(ctx, "locker/ping")
	return err
}

// list lists the names, if the driver can.
func list(ctx context.Context, d driver.Driver) ([]string, error) {
	if l, ok := d.(driver.Lister); ok {
		return l.List(ctx)
	}
	return nil, fmt.Errorf("%w: list", driver.ErrUnsupported)
}

// breakTicket breaks a ticket, if the driver can.
func breakTicket(ctx context.Context, d driver.Driver, name string, token uint64) error {
	if b, ok := d.(driver.Breaker); ok {
		return b.Break(ctx, name, token)
	}
	return fmt.Errorf("%w: break", driver.ErrUnsupported)
}

// shorten shortens a lease, if the driver can.
func shorten(ctx context.Context, d driver.Driver, h driver.Hold, left time.Duration) error {
	if s, ok := d.(driver.Shortener); ok {
		return s.Shorten(ctx, h, left)
	}
	return fmt.Errorf("%w: shorten", driver.ErrUnsupported)
}

// renewAll renews on one driver, in a batch if it can.
func renewAll(ctx context.Context, d driver.Driver, rs []driver.Renewal) []error {
	const atOnce = 16
	errs := make([]error, len(rs))
	if b, ok := d.(driver.BatchRenewer); ok {
		if answers := b.RenewAll(ctx, rs); len(answers) == len(rs) {
			return answers
		}
		for i := range errs {
			errs[i] = errors.New("the answer to a batch of renewals has the wrong length")
		}
		return errs
	}
	var group sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i, r := range rs {
		slots <- struct{}{}
		group.Go(func() {
			errs[i] = d.Renew(ctx, r.Hold, r.TTL)
			<-slots
		})
	}
	group.Wait()
	return errs
}

// partially returns the error of one store that does not hold for all: it hides sentinels
// that say that the ticket is gone, because another store may have it.
func partially(err error) error {
	if errors.Is(err, driver.ErrNoTicket) || errors.Is(err, driver.ErrLost) || errors.Is(err, driver.ErrNotAcquired) {
		return &partial{err}
	}
	return err // as it is: the core takes the parts of a joined error apart
}

// partial wraps the error that partially hides a sentinel of.
type partial struct{ err error }

func (p *partial) Error() string { return p.err.Error() }

func (p *partial) Is(target error) bool {
	switch target {
	case driver.ErrNoTicket, driver.ErrLost, driver.ErrNotAcquired:
		return false
	}
	return errors.Is(p.err, target)
}

func (p *partial) As(target any) bool { return errors.As(p.err, target) }
