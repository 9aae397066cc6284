package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
)

// batch is how many leases one statement renews.
const batch = 500

// Renew implements driver.Driver.
func (d *Driver) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return d.RenewAll(ctx, []driver.Renewal{{Hold: h, TTL: ttl}})[0]
}

// RenewAll implements driver.BatchRenewer: one statement for each 500 leases of
// one TTL.
func (d *Driver) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	errs := make([]error, len(rs))
	order := make([]int, len(rs)) // by TTL, then as the rows lie: so that no two batches wait for each other
	for i := range rs {
		order[i] = i
		if rs[i].Token == 0 {
			rs[i].Token, errs[i] = d.find(ctx, rs[i].Name, rs[i].ID)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(rs[a].TTL, rs[b].TTL), cmp.Compare(rs[a].Token, rs[b].Token))
	})
	for len(order) > 0 {
		n := 1
		for n < min(batch, len(order)) && rs[order[n]].TTL == rs[order[0]].TTL {
			n++
		}
		d.renewSome(ctx, rs, order[:n], errs)
		order = order[n:]
	}
	return errs
}

func (d *Driver) renewSome(ctx context.Context, rs []driver.Renewal, which []int, errs []error) {
	v := values{ttl: rs[which[0]].TTL}
	for _, i := range which {
		v.tokens = append(v.tokens, rs[i].Token)
		v.ids = append(v.ids, rs[i].ID)
		v.names = append(v.names, rs[i].Name)
	}
	n, err := d.change(ctx, "renew", v)
	if err == nil && n == int64(len(which)) {
		return
	}
	var there map[uint64]bool
	if err == nil {
		// A lease that lasts longer already is a row that did not change.
		there, err = d.tokens(ctx, "renewed", v)
	}
	for _, i := range which {
		switch {
		case errs[i] != nil:
		case err != nil:
			errs[i] = d.failed(ctx, err)
		case !there[rs[i].Token]:
			errs[i] = driver.ErrLost
		}
	}
}

// find returns the number of a ticket, or 0 when it does not stand in line.
func (d *Driver) find(ctx context.Context, name, id string) (token uint64, err error) {
	err = d.query(ctx, d.w.render("find", values{name: name, id: id}), func(rows *sql.Rows) error {
		return rows.Scan(&token)
	})
	return token, err
}

// errArriving says why nothing is known of a ticket yet.
var errArriving = errors.New("a request for the ticket, of which there was no answer, may still arrive")

// Release implements driver.Driver.
func (d *Driver) Release(ctx context.Context, h driver.Hold) error {
	if err := d.endTaking(ctx, h.ID); err != nil {
		return d.failed(ctx, err)
	}
	d.mu.Lock()
	u := d.unknown[h.ID]
	place, queued := d.queued[h.ID]
	d.mu.Unlock()
	if err := d.burn(ctx, h, u); err != nil {
		return d.failed(ctx, err)
	}
	gone := !time.Now().Before(u.until) // what is not there now will not be
	if h.Token == 0 {
		if h.Token = place.token; !queued {
			var err error
			if h.Token, err = d.find(ctx, h.Name, h.ID); err != nil {
				return d.failed(ctx, err)
			}
		}
	}
	var step string
	if h.Token > 0 {
		var err error
		if step, err = d.remove(ctx, h, queued); err != nil {
			return d.failed(ctx, err)
		}
	}
	d.poller.nudge(h.Name)
	d.released(ctx, h, step, place)
	if !gone {
		return driver.Unavailable(errArriving)
	}
	d.mu.Lock()
	delete(d.queued, h.ID)
	delete(d.unknown, h.ID)
	d.mu.Unlock()
	if step == "" {
		return driver.ErrLost
	}
	return nil
}

// released does what is to be done after the statement that released a ticket.
func (d *Driver) released(ctx context.Context, h driver.Hold, step string, place behind) {
	switch step {
	case "keep":
		d.keeper.kept(h)
		d.sweepLater() // removes the row
	case "vacate", "unqueue":
		d.tidyGate(ctx, h.Name, place.crowd)
	case "end":
		d.buryEnded(ctx, h.Name)
	}
}

// buryEnded takes a ticket whose lease was ended out of its line, unless a transaction
// guards it. Then, or if that does not succeed, whoever is next does so, or the sweep.
func (d *Driver) buryEnded(ctx context.Context, name string) {
	_, _ = d.bury(ctx, name) // see above
	d.poller.nudge(name)
	d.sweepLater()
}

// tidyGate takes away the gate of a line that is empty, as far as is known. Whoever has
// seen others behind it leaves that to the last of them, and what remains, because they
// gave up or died, to whoever comes next or to the sweep.
func (d *Driver) tidyGate(ctx context.Context, name string, crowd bool) {
	d.keeper.crowd(name, crowd)
	if !crowd && !d.poller.watches(name) {
		_ = d.closeGate(ctx, name) // what does not succeed is left to the sweep
	}
}

// remove takes a ticket out of its line, and returns the statement that did; none when
// it does not stand there.
func (d *Driver) remove(ctx context.Context, h driver.Hold, queued bool) (step string, err error) {
	v := valuesOfHold(h)
	steps := []string{"leave", "vacate", "unqueue", "end"}
	if s := d.clock.server.Load(); queued {
		steps = []string{"unqueue", "end"}
	} else if s != nil && d.keeper.keeps(h, s.floor) {
		v.server = s.start
		steps[0] = "keep"
	}
	for _, step := range steps {
		n, err := d.change(ctx, step, v)
		if err != nil || n > 0 {
			return step, err
		}
	}
	return "", nil
}

func sorted(set map[uint64]bool) []uint64 { return slices.Sorted(maps.Keys(set)) }
