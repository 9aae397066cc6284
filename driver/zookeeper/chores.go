package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
)

// chores are what is done in the background. Each has a goroutine while there
// is something to do. Driver.mu guards them.
type chores struct {
	closed    bool
	unwatched []*ticket // without a watch on their node
	watching  bool
	guarding  bool
	suspects  map[string]suspect // by ticket ID
	searching bool
	empty     map[string]struct{} // parents that may have been left empty
	tidying   bool
}

// spawn runs f in the background, unless the driver is being closed. With mu
// held.
func (d *Driver) spawn(f func()) bool {
	if d.chores.closed {
		return false
	}
	d.work.Go(f)
	return true
}

func (d *Driver) background(f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spawn(f)
}

// choreBound bounds one request of a chore.
const choreBound = 10 * time.Second

// --- Watches on our own nodes ---

// watchDelay is how long a ticket is held, or waits, before its own node is
// watched. The watch tells of a break, and a short critical section is over
// before one.
const watchDelay = 100 * time.Millisecond

// watchLater has t's own node watched, soon. With mu held.
func (d *Driver) watchLater(t *ticket) {
	if t.queued {
		return
	}
	t.queued = true
	d.chores.unwatched = append(d.chores.unwatched, t)
	if !d.chores.watching {
		d.chores.watching = d.spawn(d.watchAll)
	}
}

func (d *Driver) watchAll() {
	for {
		batch, wait := d.takeUnwatched()
		if len(batch) == 0 && wait == 0 {
			return
		}
		if len(batch) == 0 {
			if !d.pause(context.Background(), wait) {
				return
			}
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), choreBound)
		_, err := each(ctx, d, batch, func(t *ticket) (struct{}, error) { return struct{}{}, d.watchOrTell(ctx, t) })
		cancel()
		if err != nil && !d.pause(context.Background(), retryMost) {
			return
		}
	}
}

// takeUnwatched returns the tickets that are due, or how long there is to wait;
// neither: there are none, and the chore has ended.
func (d *Driver) takeUnwatched() (batch []*ticket, wait time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	rest := d.chores.unwatched[:0]
	for _, t := range d.chores.unwatched {
		switch left := watchDelay - time.Since(t.since); {
		case d.tickets[t.hold.ID] != t:
		case left <= 0:
			t.queued = false
			batch = append(batch, t)
		default:
			rest = append(rest, t)
			if wait == 0 || left < wait {
				wait = left
			}
		}
	}
	clear(d.chores.unwatched[len(rest):])
	d.chores.unwatched = rest
	if len(rest) == 0 && len(batch) == 0 {
		d.chores.unwatched = nil
		d.chores.watching = false
	}
	return batch, wait
}

// watchOrTell watches t's node; if it is gone, the loss is told. When the
// server does not answer it is tried again later.
func (d *Driver) watchOrTell(ctx context.Context, t *ticket) error {
	err := d.watchOwn(ctx, t)
	switch {
	case errors.Is(err, driver.ErrLost):
		d.lose(t, err)
		return nil
	case err != nil:
		d.mu.Lock()
		defer d.mu.Unlock()
		d.watchLater(t)
	}
	return err
}

// watchOwn sets a watch on the node of a ticket of ours; ErrLost: it is gone.
func (d *Driver) watchOwn(ctx context.Context, t *ticket) error {
	ch, err := call(ctx, d, func() (<-chan zk.Event, error) {
		_, _, ch, err := d.conn.GetW(t.path)
		return ch, err
	})
	if errors.Is(err, zk.ErrNoNode) {
		return fmt.Errorf("%w: its node %s was deleted", driver.ErrLost, t.path)
	}
	if err == nil {
		d.mu.Lock()
		t.watch = ch
		d.mu.Unlock()
	}
	return err
}

// changed hears that a node was deleted, or its data changed.
func (d *Driver) changed(ev zk.Event) {
	e, ok := parseEntry(nodeOf(ev.Path))
	if !ok {
		return
	}
	d.mu.Lock()
	t := d.tickets[e.id]
	if t == nil || t.path != ev.Path {
		d.mu.Unlock()
		return
	}
	if ev.Type == zk.EventNodeDataChanged {
		if t.watch != nil {
			t.watch = nil
			d.watchLater(t)
		}
		d.mu.Unlock()
		return
	}
	d.mu.Unlock()
	d.lose(t, fmt.Errorf("%w: its node %s was deleted", driver.ErrLost, t.path))
}

// lose takes a ticket off the books and tells of its loss.
func (d *Driver) lose(t *ticket, cause error) {
	d.mu.Lock()
	ours := d.tickets[t.hold.ID] == t
	if ours {
		delete(d.tickets, t.hold.ID)
		d.tidyLater(parentOf(t.path))
		if t.gone != nil {
			close(t.gone)
		}
	}
	held := t.held
	d.mu.Unlock()
	if ours && held {
		d.tellLost(t.hold, cause)
	}
}

// --- Leases longer than the session ---

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
			err := d.prove(ctx)
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

// --- Creates that may come late ---

// suspect is a ticket whose create was given up without an answer. The
// request may be under way still, on a connection that the server has not
// closed yet, and make a node that nobody knows of and that lives as long as the
// session. So the line is looked at until that cannot happen any more.
type suspect struct {
	parent string
	until  time.Time
}

// searchEvery is how often suspects are looked for.
const searchEvery = time.Second

func (d *Driver) suspect(parent, id string) {
	crash := d.Bounds(0).Crash // by then the server has closed the connection
	d.mu.Lock()
	defer d.mu.Unlock()
	d.chores.suspects[id] = suspect{parent: parent, until: time.Now().Add(crash)}
	if !d.chores.searching {
		d.chores.searching = d.spawn(d.searchAll)
	}
}

// clearOfSuspicion is called before a create, whose node must not be taken for
// a late one.
func (d *Driver) clearOfSuspicion(id string) (was bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, was = d.chores.suspects[id]
	delete(d.chores.suspects, id)
	return was
}

func (d *Driver) searchAll() {
	for d.pause(context.Background(), searchEvery) {
		d.mu.Lock()
		left := make(map[string]suspect, len(d.chores.suspects))
		for id, s := range d.chores.suspects {
			left[id] = s
		}
		if len(left) == 0 {
			d.chores.searching = false
		}
		d.mu.Unlock()
		if len(left) == 0 {
			return
		}
		for id, s := range left {
			d.search(id, s)
		}
	}
}

// search removes what a late create has made. The suspicion ends with a look
// after its time.
func (d *Driver) search(id string, s suspect) {
	ctx, cancel := context.WithTimeout(context.Background(), choreBound)
	defer cancel()
	late := time.Now().After(s.until)
	if d.sync(ctx) != nil {
		return
	}
	v, err := d.list(ctx, s.parent)
	if err != nil {
		return
	}
	for _, e := range v.entries {
		path := s.parent + "/" + e.node
		if e.id == id && d.isGhost(id, path) && !dropped(d.drop(ctx, path)) {
			return
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if late && d.chores.suspects[id] == s {
		delete(d.chores.suspects, id)
	}
}

func dropped(err error) bool { return err == nil || errors.Is(err, driver.ErrLost) }

// isGhost reports whether a suspect's node is not that of a ticket.
func (d *Driver) isGhost(id, path string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, is := d.chores.suspects[id]
	t := d.tickets[id]
	return is && (t == nil || t.path != path)
}

// --- Names nobody uses ---

// tidyDelay is how long after the end of a session its nodes are gone.
const tidyDelay = time.Second

// tidyLater removes the node of a name, soon, if its line is empty: the server
// removes a dead session's tickets, and leaves what they stood in. With mu
// held.
func (d *Driver) tidyLater(parent string) {
	d.chores.empty[parent] = struct{}{}
	if !d.chores.tidying {
		d.chores.tidying = d.spawn(d.tidyAll)
	}
}

func (d *Driver) tidyAll() {
	for d.pause(context.Background(), tidyDelay) {
		d.mu.Lock()
		parents := make([]string, 0, len(d.chores.empty))
		for p := range d.chores.empty {
			parents = append(parents, p)
		}
		if len(parents) == 0 {
			d.chores.tidying = false
		}
		clear(d.chores.empty)
		d.mu.Unlock()
		if len(parents) == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), choreBound)
		_, _ = each(ctx, d, parents, func(p string) (struct{}, error) {
			d.tidy(ctx, p)
			return struct{}{}, nil
		})
		cancel()
	}
}

// Processes that die together leave names that nobody comes back to. Of all
// drivers on one base, one looks for those now and then.
const (
	sweepFirst = 10 * time.Second
	sweepEvery = 10 * time.Minute
)

func (d *Driver) sweepAfter(delay time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delay += rand.N(delay / 2)
	d.sweeper = time.AfterFunc(delay, func() {
		d.background(func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			_ = d.sweep(ctx, time.Now()) // next time, then
			d.sweepAfter(sweepEvery)
		})
	})
	if d.chores.closed {
		d.sweeper.Stop()
	}
}

// sweep removes the nodes of names whose line is empty, if nobody has done so
// lately: the data of the base say when. A wrong clock makes for too many sweeps
// or too few, and nothing else.
func (d *Driver) sweep(ctx context.Context, now time.Time) error {
	if err := d.ready(ctx); err != nil {
		return err
	}
	won, err := call(ctx, d, func() (bool, error) {
		data, st, err := d.conn.Get(d.base)
		if err != nil {
			return false, err
		}
		if last, err := strconv.ParseInt(string(data), 10, 64); err == nil && now.Sub(time.UnixMilli(last)).Abs() < sweepEvery/2 {
			return false, nil
		}
		_, err = d.conn.Set(d.base, strconv.AppendInt(nil, now.UnixMilli(), 10), st.Version)
		return err == nil, err
	})
	if err != nil || !won {
		return err
	}
	_, err = d.occupied(ctx, true)
	return err
}
