package redlock

import (
	"cmp"
	"context"
	"errors"
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
const Foreign = "(another client of Redis)"

// Inspect implements driver.Driver. A ticket is in the line when it is on a
// majority, as far as the nodes that answer can tell.
func (d *Driver) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	if d.isClosed() {
		return nil, driver.ErrClosed
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
		return &call{script: redisline.RedlockInspect, keys: []string{key}}
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
	list, ok := v.([]any)
	if !ok || len(list) != 5 {
		return nil, unexpected("inspect", v)
	}
	text, _ := list[0].(string)
	now, err := strconv.ParseInt(text, 10, 64)
	holders, ok1 := list[3].([]any)
	waiters, ok2 := list[4].([]any)
	pttl, ok3 := list[2].(int64)
	if err != nil || !ok1 || !ok2 || !ok3 {
		return nil, unexpected("inspect", v)
	}
	var line []driver.Ticket
	if value, held := list[1].(string); held && value != "redlock *" {
		t := parseHolder(value)
		t.Remaining = d.remaining(time.Duration(pttl) * time.Millisecond)
		line = append(line, t)
	}
	for _, e := range append(holders, waiters...) {
		t, ok := d.parseTicket(e, now)
		if !ok {
			return nil, unexpected("inspect", v)
		}
		line = append(line, t)
	}
	return line, nil
}

// remaining is the rest of a lease without what it is longer for drift.
func (d *Driver) remaining(left time.Duration) time.Duration {
	return max(0, time.Duration(float64(left-2*time.Millisecond)/(1+d.drift)))
}

// parseHolder reads the value of the main key.
func parseHolder(value string) driver.Ticket {
	part := strings.SplitN(value, " ", 4)
	if len(part) == 4 && part[0] == "redlock" {
		token, err1 := strconv.ParseUint(part[2], 10, 64)
		t, err2 := parseRecord(part[3])
		if err1 == nil && err2 == nil {
			t.ID, t.Token, t.Held = part[1], token, true
			return t
		}
	}
	return driver.Ticket{ID: value, Owner: Foreign, Held: true}
}

// parseTicket reads {id, number, end of the lease or x or s, record}.
func (d *Driver) parseTicket(e any, now int64) (t driver.Ticket, ok bool) {
	list, _ := e.([]any)
	var part [4]string
	if len(list) != len(part) {
		return t, false
	}
	for i := range part {
		if part[i], ok = list[i].(string); !ok {
			return t, false
		}
	}
	token, err := strconv.ParseUint(part[1], 10, 64)
	if err != nil {
		return t, false
	}
	if t, err = parseRecord(part[3]); err != nil {
		return t, false
	}
	t.ID, t.Token = part[0], token
	switch part[2] {
	case "x":
	case "s":
		t.Shared = true
	default:
		till, err := strconv.ParseInt(part[2], 10, 64)
		if err != nil {
			return t, false
		}
		t.Shared, t.Held = true, true
		t.Remaining = d.remaining(time.Duration(till-now) * time.Microsecond)
	}
	return t, true
}

// List implements driver.Lister. It scans the whole key space of each node.
func (d *Driver) List(ctx context.Context) ([]string, error) {
	type found struct {
		node  int
		names map[string]struct{}
		err   error
	}
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
			return nil, context.Cause(ctx)
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
	names := make(map[string]struct{})
	var cursor uint64
	for {
		keys, next, err := n.client.Scan(n.ctx, cursor, d.keys.Pattern(), 1000).Result()
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			// No name's main key ends like this: it ends with a brace.
			key = strings.TrimSuffix(strings.TrimSuffix(key, ":rx"), ":rs")
			if name, ok := d.keys.Name(key); ok {
				names[name] = struct{}{}
			}
		}
		if cursor = next; cursor == 0 || ctx.Err() != nil {
			return names, ctx.Err()
		}
	}
}

// Break implements driver.Breaker.
func (d *Driver) Break(ctx context.Context, name string, token uint64) error {
	if d.isClosed() {
		return driver.ErrClosed
	}
	c := d.newCount(isOne("break"))
	key, number := d.keys.Main(name), strconv.FormatUint(token, 10)
	err := d.ask(ctx, c.poll, func(*node) *call {
		return &call{script: redisline.RedlockBreak, keys: []string{key}, args: []any{number, name}}
	})
	if v := c.verdict(); err == nil || v == nil {
		return v
	}
	return err
}

// errBroken is the cause of a loss that Break tells of.
var errBroken = errors.New("the lock was broken")

// hearLoss passes on that a ticket of this process was broken, when so many
// nodes have told of it that it holds on no majority: "id token x|s name".
func (d *Driver) hearLoss(node int, s string) {
	part := strings.SplitN(s, " ", 4)
	if len(part) != 4 {
		return
	}
	token, err := strconv.ParseUint(part[1], 10, 64)
	if err != nil {
		return
	}
	d.mu.Lock()
	var tell func(driver.Hold, error)
	if _, ok := d.held[part[0]]; ok {
		told := d.losses[part[0]] | 1<<node
		d.losses[part[0]] = told
		if bits.OnesCount64(told) > len(d.nodes)-d.quorum {
			tell = d.tell
			delete(d.losses, part[0])
			delete(d.held, part[0])
		}
	}
	d.mu.Unlock()
	if tell != nil {
		tell(driver.Hold{Name: part[3], ID: part[0], Token: token, Shared: part[2] == "s"}, errBroken)
	}
}
