package redlock

import (
	"cmp"
	"context"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisline"
)

// Foreign is the owner that Inspect shows for a holder that is not of this
// library: another client, which sets the keys itself. It has no token.
const Foreign = redisline.Foreign

// Inspect implements driver.Driver. A ticket is in the line when it is on a
// majority, as far as the nodes that answer can tell.
func (d *Driver) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	if d.isClosed() {
		return nil, driver.ErrClosed
	}
	if err := d.mayUse(ctx, name, false); err != nil {
		return nil, err
	}
	views := make([][]driver.Ticket, len(d.nodes))
	heard, errs := make([]bool, len(d.nodes)), make([]error, len(d.nodes))
	p := newPoll(func(node int, v any, err error) bool {
		if err == nil {
			views[node], err = d.parseLine(v)
		}
		heard[node], errs[node] = err == nil, err
		return false
	})
	key := d.keys.Main(name)
	err := d.ask(ctx, p, func(*node) *call {
		return &call{script: d.keys.Script(redisline.RedlockInspect), keys: []string{key}}
	})
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	answered := 0
	for _, ok := range heard {
		if ok {
			answered++
		}
	}
	if answered < d.quorum {
		return nil, d.unreached(errs, func(i int) bool { return heard[i] })
	}
	return d.merge(views, d.least(answered)), nil
}

// least is on how many of the nodes that answered a ticket is seen at least
// that is on a majority of all.
func (d *Driver) least(answered int) int { return max(1, answered+d.quorum-len(d.nodes)) }

// merge makes one line of what the nodes have.
func (d *Driver) merge(views [][]driver.Ticket, least int) []driver.Ticket {
	seen := make(map[string][]driver.Ticket)
	for _, view := range views {
		for _, t := range view {
			id := t.ID + "/" + strconv.FormatUint(t.Token, 10)
			seen[id] = append(seen[id], t)
		}
	}
	var line []driver.Ticket
	for _, votes := range seen {
		if len(votes) >= least {
			line = append(line, d.mergeTicket(votes, least))
		}
	}
	slices.SortFunc(line, func(a, b driver.Ticket) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.ID, b.ID))
	})
	return line
}

// mergeTicket makes one ticket of what several nodes say of it. It holds when it
// does on a majority, and for as long.
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

// parseLine reads the answer of redlock_inspect.lua.
func (d *Driver) parseLine(v any) ([]driver.Ticket, error) {
	view, err := redisline.ParseView(v, mark, form)
	if err != nil {
		return nil, err
	}
	line := view.Tickets
	if view.Taken {
		t := parseHolder(view.Value)
		t.Remaining = view.Left
		line = append(line, t)
	}
	for i := range line {
		if line[i].Held {
			line[i].Remaining = d.remaining(line[i].Remaining)
		}
	}
	return line, nil
}

// remaining is the rest of a lease without what it is longer for drift.
func (d *Driver) remaining(left time.Duration) time.Duration {
	return max(0, time.Duration(float64(left-2*time.Millisecond)/(1+d.drift)))
}

// parseHolder reads the value of the main key.
func parseHolder(value string) driver.Ticket {
	rest, ours := strings.CutPrefix(value, "redlock ")
	if t, ok := form.ParseHolder(rest); ours && ok {
		return t
	}
	return driver.Ticket{ID: value, Owner: Foreign, Held: true}
}

// List implements driver.Lister. It scans the whole key space of each node. With
// WithKeyForm, names that only other programs hold are not listed.
func (d *Driver) List(ctx context.Context) ([]string, error) {
	if err := d.agree(ctx, false); err != nil {
		return nil, err
	}
	type found struct {
		node  int
		names map[string]struct{}
		err   error
	}
	d.listen()
	results := make(chan found, len(d.nodes))
	for _, n := range d.nodes {
		if !d.begin() {
			return nil, driver.ErrClosed
		}
		go func() {
			defer d.work.Done()
			names, err := d.scan(ctx, n)
			results <- found{n.index, names, err}
		}()
	}
	heard, errs := make([]bool, len(d.nodes)), make([]error, len(d.nodes))
	counts := make(map[string]int)
	answered := 0
	for range d.nodes {
		select {
		case f := <-results:
			heard[f.node], errs[f.node] = f.err == nil, f.err
			if f.err == nil {
				answered++
			}
			for name := range f.names {
				counts[name]++
			}
		case <-ctx.Done():
			return nil, redisline.Ended(ctx, d.deaf())
		}
	}
	if answered < d.quorum {
		return nil, d.unreached(errs, func(i int) bool { return heard[i] })
	}
	var list []string
	for name, n := range counts {
		if n >= d.least(answered) {
			list = append(list, name)
		}
	}
	return list, nil
}

// scan returns the names that have a live ticket on a node.
func (d *Driver) scan(ctx context.Context, n *node) (map[string]struct{}, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(n.ctx, cancel)()
	names := make(map[string]struct{})
	err := d.keys.Names(ctx, n.client, "redlock", []string{":rx", ":rs"}, func(name string) { names[name] = struct{}{} })
	return names, err
}

// Break implements driver.Breaker.
func (d *Driver) Break(ctx context.Context, name string, token uint64) error {
	if d.isClosed() {
		return driver.ErrClosed
	}
	if err := d.mayUse(ctx, name, false); err != nil {
		return err
	}
	c := d.newCount(isOne("break"))
	key, number := d.keys.Main(name), strconv.FormatUint(token, 10)
	err := d.ask(ctx, c.poll, func(*node) *call {
		return &call{script: d.keys.Script(redisline.RedlockBreak), keys: []string{key}, args: []any{number, name}}
	})
	if v := c.verdict(); err == nil || v == nil {
		return v
	}
	return err
}

// hearLoss passes on that a ticket of this process was broken, when so many
// nodes have told of it that it holds on no majority.
func (d *Driver) hearLoss(node int, s string) {
	h, ok := redisline.ParseLoss(s)
	if !ok {
		return
	}
	d.mu.Lock()
	var tell func(driver.Hold, error)
	if _, held := d.held[h.ID]; held {
		told := d.losses[h.ID] | 1<<node
		d.losses[h.ID] = told
		if bits.OnesCount64(told) > len(d.nodes)-d.quorum {
			tell = d.tell
			delete(d.losses, h.ID)
			delete(d.held, h.ID)
		}
	}
	d.mu.Unlock()
	if tell != nil {
		tell(h, redisline.ErrRemoved)
	}
}
