package redlock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
)

// Foreign is the owner that Inspect shows for a holder of another library, which sets the
// keys itself. It has no fencing token: the one that is shown depends on the keys' value
// alone, so that Break removes no other holder. Keys that are no strings all have the same.
const Foreign = redisqueue.Foreign

// others is how long Inspect waits for the other nodes once a majority has answered, and they change nothing that counts.
const others = 100 * time.Millisecond

// Inspect implements driver.Driver. A ticket is in the queue if it is on a majority of
// the nodes, or may be, judging by the nodes that answer within their timeout. While some do not answer, that shows, too, what a try
// whose process has died has left on a few: it may have the number of a ticket that is on the others.
func (d *Driver) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	if err := d.mayUse(ctx, name, false); err != nil {
		return nil, err
	}
	r := newRound(d, d.parseQueue)
	r.enough, r.rest = func() bool { return r.answered() >= d.quorum && d.agreed(r.answers, d.least(r.answered())) }, others
	keys := []string{d.keys.Main(name)}
	err := r.ask(ctx, func(*node) *redisqueue.Call { return d.keys.Call(redisqueue.RedlockInspect, keys) })
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered() < d.quorum {
		return nil, r.failure()
	}
	return d.merge(r.answers, d.least(r.answered())), nil
}

// least is on how many of the nodes that answered a ticket must be, at least, if it is on
// a majority of all.
func (d *Driver) least(answered int) int { return max(1, answered-d.minority()) }

// agreed reports whether each ticket that may be on a majority, or may hold on one, does so on the nodes that have answered.
func (d *Driver) agreed(views [][]driver.Ticket, least int) bool {
	return slices.EqualFunc(d.merge(views, least), d.merge(views, d.quorum), func(a, b driver.Ticket) bool {
		return a.ID == b.ID && a.Token == b.Token && a.Held == b.Held
	})
}

// merge makes one queue of what the nodes have.
func (d *Driver) merge(views [][]driver.Ticket, least int) []driver.Ticket {
	seen := make(map[string][]driver.Ticket)
	for _, view := range views {
		for _, t := range view {
			id := t.ID + "/" + strconv.FormatUint(t.Token, 10)
			seen[id] = append(seen[id], t)
		}
	}
	var queue []driver.Ticket
	for _, votes := range seen {
		if len(votes) >= least {
			queue = append(queue, d.mergeTicket(votes, least))
		}
	}
	slices.SortFunc(queue, func(a, b driver.Ticket) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.ID, b.ID))
	})
	return queue
}

// mergeTicket makes one ticket of what several nodes have of it. It is held if it is held
// on a majority, and for as long.
func (d *Driver) mergeTicket(votes []driver.Ticket, least int) driver.Ticket {
	slices.SortFunc(votes, func(a, b driver.Ticket) int {
		if a.Held != b.Held {
			if a.Held {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.Remaining, a.Remaining)
	})
	last := votes[least-1]
	t := votes[0]
	t.Held, t.Remaining = last.Held, last.Remaining
	if !t.Held {
		t.Since = votes[len(votes)-1].Since
	}
	return t
}

// parseQueue reads the answer of inspect.lua.
func (d *Driver) parseQueue(v any) ([]driver.Ticket, error) {
	queue, err := form.ParseView(v)
	for i := range queue {
		if queue[i].Held {
			queue[i].Remaining = d.remaining(queue[i].Remaining)
		}
	}
	return queue, err
}

// remaining is the rest of a lease, without what was added for drift.
func (d *Driver) remaining(left time.Duration) time.Duration {
	return max(0, time.Duration(float64(left-2*time.Millisecond)/(1+d.drift)))
}

// List implements driver.Lister. It scans the whole key space of each node. With
// WithKeyForm, names that only other programs hold are not listed.
func (d *Driver) List(ctx context.Context) ([]string, error) {
	if err := d.agree(ctx, false); err != nil {
		return nil, err
	}
	d.listen()
	r := newRound(d, func(v any) ([]string, error) { return v.([]string), nil })
	r.enough, r.rest = func() bool { return r.answered() >= d.quorum }, d.timeout
	scan := func(ctx context.Context, n *node) (any, error) {
		return d.keys.Names(ctx, n.client, form.Word, ":rx", ":rs")
	}
	if err := r.do(ctx, scan); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.answered() < d.quorum {
		return nil, r.failure()
	}
	counts := make(map[string]int)
	for _, names := range r.answers {
		for _, name := range names {
			counts[name]++
		}
	}
	var list []string
	for name, n := range counts {
		if n >= d.least(r.answered()) {
			list = append(list, name)
		}
	}
	return list, nil
}

// Break implements driver.Breaker. If fewer than a majority had the ticket, it is sent again: one that has run it without the
// ticket may have got that since, by a repair. So it is if the majority took long: the process of the ticket takes what nodes have
// run at longer intervals than spread for failed, and a notification takes some time, too.
func (d *Driver) Break(ctx context.Context, name string, token uint64) error {
	if err := d.mayUse(ctx, name, false); err != nil {
		return err
	}
	keys, number := []string{d.keys.Main(name)}, strconv.FormatUint(token, 10)
	for found := false; ; found = true {
		asked := time.Now()
		had, err := d.votes(ctx, "break", nil, func(*node) *redisqueue.Call { return d.keys.Call(redisqueue.RedlockBreak, keys, number, name) })
		gone := found && errors.Is(err, driver.ErrLost)
		switch {
		case err != nil && !gone:
			return err
		case (gone || had >= d.quorum) && time.Since(asked) < spread-time.Second:
			return nil
		}
	}
}

// ServerVersion implements driver.ServerVersioner: the versions of the nodes that
// answer, each once.
func (d *Driver) ServerVersion(ctx context.Context) (string, error) {
	r := newRound(d, func(v any) (string, error) { return v.(string), nil })
	r.enough, r.rest = func() bool { return r.answered() >= d.quorum }, d.timeout
	if err := r.do(ctx, func(ctx context.Context, n *node) (any, error) { return redisqueue.ServerVersion(ctx, n.client) }); err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	versions := slices.DeleteFunc(slices.Clone(r.answers), func(v string) bool { return v == "" })
	if len(versions) == 0 {
		return "", r.failure()
	}
	slices.Sort(versions)
	return strings.Join(slices.Compact(versions), ", "), nil
}
