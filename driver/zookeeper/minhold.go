package zookeeper

import (
	"context"
	"fmt"
	"time"

	"github.com/lockerproject/locker/driver"
)

// canKeep refuses a minimum hold that the session cannot give. Nothing but the
// session keeps a ticket, so it stays for as long as the server waits for a
// client that has gone, and then only if nobody has ended the session: the
// user's own connection would end it, or keep it for ever.
func (d *Driver) canKeep(ctx context.Context, least time.Duration) error {
	if !d.owned {
		return fmt.Errorf("%w: a minimum hold on a connection that is not the driver's own; open the store by URL", driver.ErrUnsupported)
	}
	if err := d.connected(ctx); err != nil {
		return err // the timeout of the session is not known
	}
	s := d.session()
	if s == nil {
		return d.offline()
	}
	if most := s.lease(); least > most {
		return fmt.Errorf("%w: a minimum hold of %v: a session of %v keeps a ticket for %v at most",
			driver.ErrUnsupported, least, time.Duration(s.timeout.Load()), most)
	}
	return nil
}

// hasMinHold reports whether a ticket has to stay when the driver is closed.
// With mu held.
func (d *Driver) hasMinHold(now time.Time) bool {
	for _, t := range d.tickets {
		if t.held && t.kept.After(now) {
			return true
		}
	}
	return false
}
