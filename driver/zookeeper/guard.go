package zookeeper

import (
	"context"
	"fmt"
	"time"

	"github.com/lockerproject/locker/driver"
)

// guard sees to a lease that the core trusts for longer than the session is
// sure to last without a sign of life: a fixed one, or one that was extended. It
// asks the store for such a sign, and tells of the loss when none came in time.
// With mu held.
func (d *Driver) guard(t *ticket) {
	t.guarded = true
	if !d.chores.guarding {
		d.chores.guarding = d.spawn(d.guardAll)
	}
}

func (d *Driver) guardAll() {
	for {
		s, tickets := d.takeGuarded()
		if s == nil {
			return
		}
		proved, lease := s.provedAt(), s.lease()
		end := proved.Add(lease - lease/10)
		switch wait := time.Until(proved.Add(lease / 3)); {
		case !time.Now().Before(end):
			for _, t := range tickets {
				d.giveUp(t)
			}
		case wait > 0:
			if !d.pause(context.Background(), wait) {
				return
			}
		default:
			ctx, cancel := context.WithTimeout(context.Background(), min(lease/6, time.Until(end)))
			err := d.proveOrLeave(ctx)
			cancel()
			if err != nil && !d.pause(context.Background(), retryFirst) {
				return
			}
		}
	}
}

// takeGuarded returns the session and its guarded tickets; nil: there are none,
// and the chore has ended.
func (d *Driver) takeGuarded() (*session, []*ticket) {
	s := d.session()
	d.mu.Lock()
	defer d.mu.Unlock()
	var tickets []*ticket
	for _, t := range d.tickets {
		if t.guarded && t.held && t.sess == s {
			tickets = append(tickets, t)
		}
	}
	if len(tickets) == 0 {
		d.chores.guarding = false
		return nil, nil
	}
	return s, tickets
}

// giveUp tells that a ticket is lost, and takes it off the store once that can
// be reached.
func (d *Driver) giveUp(t *ticket) {
	d.lose(t, fmt.Errorf("%w: no server has confirmed the session in time", driver.ErrLost))
	d.background(func() { d.dropUntilGone(t) })
}
