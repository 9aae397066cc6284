package mysql

import (
	"cmp"
	"context"
	"errors"
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
	order := make([]int, len(rs)) // by TTL, then by token, so that no two batches wait for each other
	for i := range rs {
		order[i] = i
		if rs[i].Token == 0 {
			var err error
			if rs[i].Token, err = d.find(ctx, rs[i].Name, rs[i].ID); err != nil {
				errs[i] = d.failed(ctx, err)
			}
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
	var renewed []uint64
	if err == nil { // a row that did not change may have a longer lease
		renewed, err = d.tokens(ctx, "renewed", v)
	}
	for _, i := range which {
		switch {
		case errs[i] != nil:
		case err != nil:
			errs[i] = d.failed(ctx, err)
		case !contains(renewed, rs[i].Token):
			errs[i] = driver.ErrLost
		}
	}
}

// Shorten implements driver.Shortener. Waiters poll often enough to notice.
func (d *Driver) Shorten(ctx context.Context, h driver.Hold, left time.Duration) error {
	v := values{ttl: left, tokens: []uint64{h.Token}, ids: []string{h.ID}, names: []string{h.Name}}
	n, err := d.change(ctx, "shorten", v)
	if err == nil && n == 0 { // a row that did not change may have a shorter lease
		var held []uint64
		if held, err = d.tokens(ctx, "renewed", v); err == nil && len(held) == 0 {
			err = driver.ErrLost
		}
	}
	return d.failed(ctx, err)
}

// find returns the token of a ticket; 0: it is not in the queue.
func (d *Driver) find(ctx context.Context, name, id string) (token uint64, err error) {
	found, err := d.tokens(ctx, "find", values{name: name, id: id})
	if len(found) > 0 {
		token = found[0]
	}
	return token, err
}

// errArriving says that a ticket that is not there may still be inserted.
var errArriving = errors.New("a request for the ticket was not answered and may still arrive")

// Release implements driver.Driver.
func (d *Driver) Release(ctx context.Context, h driver.Hold) error {
	var s ticketState
	d.state(h.ID, func(now *ticketState) { s = *now })
	if s.insertion != nil {
		if err := d.endInsertion(ctx, s.insertion); err != nil {
			return d.failed(ctx, err)
		}
		d.state(h.ID, func(now *ticketState) { s = *now })
	}
	late := time.Now().Before(s.lateUntil) // if the ticket is not there now, it may be later
	if h.Token == 0 {
		h.Token = s.token
	}
	if h.Token == 0 {
		var err error
		if h.Token, err = d.find(ctx, h.Name, h.ID); err != nil {
			return d.failed(ctx, err)
		}
	}
	removed := false
	if h.Token > 0 {
		step, err := d.remove(ctx, h, s.token > 0)
		if err != nil {
			return d.failed(ctx, err)
		}
		if removed = step != ""; step == "idle" {
			d.anchors.left(h)
		}
		d.tidy(ctx, h.Name, step, s.followed)
	}
	if late {
		return driver.Unavailable(errArriving)
	}
	d.state(h.ID, func(now *ticketState) { *now = ticketState{} })
	if !removed {
		return driver.ErrLost
	}
	return nil
}

// remove removes a ticket from its queue, and returns the name of the statement that did so; "": the
// ticket is not there.
func (d *Driver) remove(ctx context.Context, h driver.Hold, queued bool) (step string, err error) {
	v := valuesOfHold(h)
	v.start = d.anchors.stays(h)
	steps := []string{"idle", "leave", "vacate", "dequeue", "end_lease"}
	switch {
	case queued: // after an anchor
		steps = steps[3:]
	case v.start == 0:
		steps = steps[1:]
	}
	for _, step := range steps {
		n, err := d.change(ctx, step, v)
		if err != nil || n > 0 {
			return step, err
		}
	}
	return "", nil
}

// tidy does what has to be done after a ticket was removed. If it fails, the next process in the queue
// does it, or the sweep.
func (d *Driver) tidy(ctx context.Context, name, step string, followed bool) {
	d.poller.moved(name)
	switch step {
	case "vacate", "dequeue": // the last ticket that follows removes the anchor
		if !followed && !d.poller.watches(name) {
			_ = d.closeQueue(ctx, name)
		}
	case "end_lease":
		_, _ = d.reap(ctx, name)
		d.poller.moved(name)
	}
}
