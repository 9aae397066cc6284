package postgres

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker/driver/internal/sqlline"
)

// The keeper is the goroutine that keeps this process's waiting tickets alive
// and finds out what nobody tells it: it sends a beat every quarter of the
// liveness interval, looks at lines whose head may have died, and polls for
// grants while there is no connection to LISTEN on. It costs the same however
// many tickets wait on a name. It runs while something waits.
const (
	keeperIdle = 10 * time.Second // runs on for so long after the last wait
	checkEvery = 10               // beats between two comparisons of the books
	lookMost   = 1000             // names in one look
	stagger    = 150 * time.Millisecond
	pollLeast  = 2 * time.Millisecond
	pollFirst  = 100 * time.Millisecond // by then there is a connection to LISTEN on
	pollMost   = 250 * time.Millisecond
)

type keeper struct {
	d        *Driver
	nextBeat time.Time
	nextPoll time.Time
	poll     time.Duration // the present interval
	beats    int
	idle     time.Time // since when nothing waits; zero: something does
}

// beatEvery is the time between two beats.
func (d *Driver) beatEvery() time.Duration { return d.opts.liveness / 4 }

// register makes the present incarnation known to the database, unless that was
// done since a request was sent whose answer was that the one of then is not.
func (d *Driver) register(ctx context.Context, then int64, asked time.Time) error {
	select {
	case d.registering <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-d.ctx.Done():
		return d.ctx.Err()
	}
	defer func() { <-d.registering }()
	d.line.mu.Lock()
	process, registered, last := d.line.process, d.line.registered, d.line.lastBeat
	d.line.mu.Unlock()
	if registered {
		if process != then || last.After(asked) {
			return nil
		}
		d.line.died(process) // says the database
		process = d.line.current()
	}
	err := d.retry(ctx, true, func() error {
		alive, _, err := d.beat(ctx, process, true)
		if err == nil && !alive { // it was tried before, long ago
			d.line.mu.Lock()
			d.line.next()
			process = d.line.process
			d.line.mu.Unlock()
			_, _, err = d.beat(ctx, process, true)
		}
		return err
	})
	if err == nil {
		d.keep()
	}
	return err
}

// beat says that an incarnation lives; false if the database has given it up.
// It returns what was granted to the incarnation before.
func (d *Driver) beat(ctx context.Context, process int64, first bool) (alive bool, claims []row, err error) {
	var n int64
	var sent time.Time
	err = d.query(ctx, true, &sent, func(r pgx.Rows) (err error) {
		n, claims, err = scanRow(r, claims)
		return err
	}, d.w.beat, process, sqlline.Micros(d.opts.liveness), first)
	if err == nil && n > 0 {
		d.line.heard(process, n, sent)
	}
	return n > 0, claims, err
}

// keep starts the keeper unless it runs.
func (d *Driver) keep() {
	d.line.mu.Lock()
	defer d.line.mu.Unlock()
	if d.line.keeping || d.ctx.Err() != nil {
		return
	}
	d.line.keeping = true
	k := &keeper{d: d, nextBeat: time.Now(), poll: pollLeast}
	if d.line.registered {
		k.nextBeat = k.nextBeat.Add(d.beatEvery())
	}
	if d.opts.listen {
		k.nextPoll = time.Now().Add(pollFirst)
	}
	d.work.Go(k.run)
}

func (k *keeper) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-k.d.line.wake:
		case <-k.d.ctx.Done():
			return
		}
		now := time.Now()
		if !now.Before(k.nextBeat) {
			k.beat()
		}
		if k.d.line.wantsReread() {
			k.compare(true)
		}
		k.look(now)
		if k.stop() {
			return
		}
		timer.Reset(time.Until(k.next()))
	}
}

// next is when there is something to do.
func (k *keeper) next() time.Time {
	l := &k.d.line
	l.mu.Lock()
	defer l.mu.Unlock()
	at := k.nextBeat
	if len(l.waiters) > 0 && !l.live {
		if k.nextPoll.Before(at) {
			at = k.nextPoll
		}
	}
	for _, n := range l.watched {
		if n.due.Before(at) {
			at = n.due
		}
	}
	return at
}

// stop ends the keeper when nothing has waited for a while.
func (k *keeper) stop() bool {
	l := &k.d.line
	l.mu.Lock()
	now := time.Now()
	switch {
	case len(l.waiters) > 0:
		k.idle = time.Time{}
	case k.idle.IsZero():
		k.idle = now
	}
	over := !k.idle.IsZero() && now.Sub(k.idle) > keeperIdle || !l.registered && len(l.waiters) == 0
	if over {
		l.keeping = false
	}
	l.mu.Unlock()
	if !over {
		return false
	}
	if process, ok := l.unregister(false); ok {
		ctx, cancel := k.bound()
		defer cancel()
		_ = k.d.exec(ctx, k.d.w.leave, process) // if not reached, it expires
		return true
	}
	// Somebody began to wait meanwhile, and counts on the keeper.
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiters) == 0 || !l.registered || l.keeping {
		return true
	}
	l.keeping = true
	return false
}

// bound is how long one request of the keeper may take: the next should not
// wait for one that hangs.
func (k *keeper) bound() (context.Context, context.CancelFunc) {
	return context.WithTimeout(k.d.ctx, max(k.d.beatEvery(), 100*time.Millisecond))
}

func (k *keeper) beat() {
	d := k.d
	k.nextBeat = time.Now().Add(d.beatEvery())
	d.line.mu.Lock()
	process, registered, waits := d.line.process, d.line.registered, len(d.line.waiters) > 0
	d.line.mu.Unlock()
	if !registered && !waits {
		return
	}
	// Not registered, and yet there are tickets: the answer to the first beat
	// was lost.
	ctx, cancel := k.bound()
	defer cancel()
	var (
		asked  time.Time
		alive  bool
		claims []row
	)
	// After an outage every connection of the pool is broken, and finds out by use:
	// the place in line is not to wait for an interval after each.
	err := d.retry(ctx, true, func() (err error) {
		asked = time.Now()
		alive, claims, err = d.beat(ctx, process, !registered)
		return err
	})
	switch {
	case err != nil:
		d.line.unheard(err)
		k.nextBeat = time.Now().Add(min(d.beatEvery()/4, pollMost))
		return
	case !alive:
		d.line.died(process)
		return
	}
	if k.settle(ctx, claims, process, asked, false) {
		signal(d.line.kick) // it should have been told: is the listener dead?
	}
	if k.beats++; k.beats%checkEvery == 0 {
		k.compare(true)
	}
}

// compare asks what the database has of our tickets, all of them or those that
// were granted, and reports whether there were grants we had not heard of.
func (k *keeper) compare(all bool) (news bool) {
	d := k.d
	sql := d.w.claims
	if all {
		sql = d.w.queued
	}
	process := d.line.current()
	ctx, cancel := k.bound()
	defer cancel()
	var rows []row
	var asked time.Time
	err := d.query(ctx, true, &asked, func(r pgx.Rows) (err error) {
		_, rows, err = scanRow(r, rows)
		return err
	}, sql, process)
	if err != nil {
		d.line.unheard(err)
		d.line.missed()
		return false
	}
	return k.settle(ctx, rows, process, asked, all)
}

// settle sets the books right, and gives back tickets that nobody waits for:
// those of requests whose answers were lost.
func (k *keeper) settle(ctx context.Context, rows []row, process int64, asked time.Time, all bool) (news bool) {
	orphans, news := k.d.line.compare(rows, process, asked, all)
	for _, o := range orphans {
		_, _ = k.d.call(ctx, nil, k.d.w.release, []byte(o.name), o.id, process, true) // else next time
	}
	return news
}

// scanRow reads a number and appends the ticket beside it, if there is one.
func scanRow(r pgx.Rows, to []row) (int64, []row, error) {
	var (
		n     int64
		id    *string
		name  []byte
		token *int64
		held  *bool
		left  *int64
	)
	if err := r.Scan(&n, &id, &name, &token, &held, &left); err != nil || id == nil {
		return n, to, err
	}
	t := row{id: *id, name: string(name), token: uint64(*token), held: *held} //nolint:gosec // the schema has them positive
	if left != nil {
		t.left = time.Duration(*left) * time.Microsecond
	}
	return n, append(to, t), nil
}

// look looks at the lines that are due, and for grants if it has to.
func (k *keeper) look(now time.Time) {
	d := k.d
	names, process := d.line.look(now, lookMost)
	if len(names) > 0 {
		k.lookAt(names, process)
	}
	d.line.mu.Lock()
	polling := !d.line.live && len(d.line.waiters) > 0 && d.line.registered
	d.line.mu.Unlock()
	if !polling || now.Before(k.nextPoll) {
		return
	}
	if k.compare(false) {
		k.poll = pollLeast // more is likely to follow
	} else {
		k.poll = min(k.poll*5/4+time.Millisecond, pollMost, d.beatEvery())
	}
	k.nextPoll = time.Now().Add(k.poll)
}

// A sight is what look says of one line.
type sight struct {
	due   time.Duration // -1: there is something to do
	first bool          // the next to be granted is of this process
}

func (k *keeper) lookAt(names []string, process int64) {
	d := k.d
	ctx, cancel := k.bound()
	defer cancel()
	args := make([][]byte, len(names))
	for i, n := range names {
		args[i] = []byte(n)
	}
	seen := make([]sight, len(names))
	err := d.query(ctx, true, nil, func(r pgx.Rows) error {
		var i, due int64
		var first bool
		if err := r.Scan(&i, &due, &first); err != nil {
			return err
		}
		seen[i-1] = sight{time.Duration(due) * time.Microsecond, first}
		return nil
	}, d.w.look, args, process)
	for i, name := range names {
		wait := min(d.beatEvery(), pollMost)
		if err == nil {
			wait = k.act(ctx, name, process, seen[i])
		}
		d.line.again(name, time.Now().Add(wait))
	}
}

// act does what a sight asks for, and returns when to look again. The process
// whose ticket is next looks at the very end of the lease ahead; others a
// little later, so that they do not all act at once.
func (k *keeper) act(ctx context.Context, name string, process int64, s sight) time.Duration {
	if s.due < 0 {
		_, _ = k.d.call(ctx, nil, k.d.w.poke, []byte(name), process) // else the next look
		return 50 * time.Millisecond
	}
	wait := s.due + time.Millisecond
	if !s.first {
		wait += time.Duration(rand.Int64N(int64(stagger)))
	}
	return min(wait, max(k.d.beatEvery(), k.rare()))
}

// rare spreads the looks of a process that waits on very many names.
func (k *keeper) rare() time.Duration {
	k.d.line.mu.Lock()
	defer k.d.line.mu.Unlock()
	return time.Duration(len(k.d.line.watched)) * time.Millisecond
}
