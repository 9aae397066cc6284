package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlline"
)

// Acquire implements driver.Driver.
func (d *Driver) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	if d.ctx.Err() != nil {
		return driver.Grant{}, driver.ErrClosed
	}
	w := d.line.add(r)
	g, standing, err := d.join(ctx, r, w)
	if err == nil || errors.Is(err, driver.ErrNotAcquired) {
		d.sweepLater()
	}
	if !standing {
		d.line.remove(w, err == nil)
		if err == nil {
			d.listenSoon()
		}
		return g, d.failed(ctx, err)
	}
	if r.Joined != nil {
		r.Joined()
	}
	d.listenSoon()
	select {
	case o := <-w.news:
		return d.taken(ctx, r, o)
	case <-ctx.Done():
		d.line.remove(w, false)
		return driver.Grant{}, errors.Join(context.Cause(ctx), d.line.lastFault())
	case <-d.ctx.Done():
		d.line.remove(w, false)
		return driver.Grant{}, driver.ErrClosed
	}
}

// join asks for a ticket until it is granted, refused, or queued.
func (d *Driver) join(ctx context.Context, r driver.Request, w *waiter) (g driver.Grant, standing bool, err error) {
	unanswered := false
	for {
		var (
			rep   reply
			asked time.Time
		)
		err = d.retry(ctx, true, func() (err error) {
			asked = time.Time{}
			rep, err = d.call(ctx, &asked, d.w.acquire, []byte(r.Name), r.ID, w.process, r.Shared, permits(r),
				sqlline.Micros(r.TTL), r.Wait, []byte(r.Owner), []byte(r.Note), d.clock.deadline(ctx))
			unanswered = unanswered || err != nil && !asked.IsZero() && !refused(err)
			return err
		})
		if err == nil {
			switch rep.words[0] {
			case "n":
				return g, false, driver.ErrNotAcquired
			case "g":
				token, err := rep.number(1)
				return driver.Grant{Token: token, Asked: asked}, false, err
			case "w":
				due, err := rep.number(2)
				if err == nil && !d.line.stands(w, time.Duration(due)*time.Microsecond) { //nolint:gosec // an hour at most
					err = driver.ErrLost
				}
				d.keep()
				return g, err == nil, err
			case "t":
				err = d.late(ctx, rep, asked)
			case "p":
				if err = d.register(ctx, w.process, asked); err == nil {
					d.line.rejoin(w)
				}
			default:
				return g, false, errReply
			}
		}
		if err != nil && !unanswered {
			err = driver.NoTicket(err)
		}
		if err != nil {
			return g, false, err
		}
	}
}

// late takes the time from the answer to a request that came too late, or did not know
// the time. The request is sent again while its context lasts.
func (d *Driver) late(ctx context.Context, rep reply, asked time.Time) error {
	now, err := rep.number(1)
	if err == nil {
		d.clock.set(int64(now), asked) //nolint:gosec // 63 bits
		err = context.Cause(ctx)
	}
	return err
}

// taken makes a grant of what a waiter was told.
//
// Who grants a waiting ticket gives it a lease of its TTL that ends sooner if
// the ticket's process falls silent, so that one that has died does not hold
// the line for a TTL. Its end is known from the last beat. For a core that
// renews that is a provisional lease, which it renews in time; for others, for a ticket that
// has to outlive its process, and when little of it is left, the lease is lengthened
// before the grant is told.
func (d *Driver) taken(ctx context.Context, r driver.Request, o outcome) (driver.Grant, error) {
	if o.err != nil {
		return driver.Grant{}, o.err
	}
	claim := min(r.TTL, d.opts.liveness)
	if r.Renewed && r.MinHold == 0 && time.Until(o.until) >= claim/2 {
		g := driver.Grant{Token: o.token, Asked: o.until.Add(-claim)}
		if claim < r.TTL {
			g.Claim = claim
		}
		return g, nil
	}
	asked := time.Now()
	if err := d.Renew(ctx, r.Hold(o.token), r.TTL); err != nil {
		d.line.letGo(r.ID)
		return driver.Grant{}, err
	}
	return driver.Grant{Token: o.token, Asked: asked}, nil
}
