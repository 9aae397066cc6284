package zookeeper

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
	"github.com/lockerproject/locker/internal/testbed"
)

// noticed is a context that calls err when it is asked for its error, which is before each
// request, and done when somebody waits for its end.
type noticed struct {
	context.Context
	err, done func()
}

func (n noticed) Err() error {
	if n.err != nil {
		n.err()
	}
	return n.Context.Err()
}

func (n noticed) Done() <-chan struct{} {
	if n.done != nil {
		n.done()
	}
	return n.Context.Done()
}

// answered reports whether an answer comes soon. A call that waits for something that the caller holds up
// gives none.
func answered(answers chan error) bool {
	select {
	case err := <-answers:
		answers <- err
		return true
	case <-time.After(200 * time.Millisecond):
		return false
	}
}

// queuedAs lists the nodes of a ticket in the queue of x.
func queuedAs(t *testing.T, conn *zk.Conn, d *Driver, id string) []string {
	t.Helper()
	nodes, _, err := conn.Children(d.parent("x"))
	if err != nil && !errors.Is(err, zk.ErrNoNode) {
		t.Fatal(err)
	}
	return slices.DeleteFunc(nodes, func(n string) bool { return !strings.HasPrefix(n, id+"_") })
}

// settled fails unless the driver has no ticket of that ID, nor waits for one.
func settled(t *testing.T, conn *zk.Conn, d *Driver, id string) {
	t.Helper()
	if left := queuedAs(t, conn, d, id); len(left) != 0 {
		t.Errorf("%v are queued after the release", left)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.turns) != 0 || len(d.creates) != 0 || d.tickets[id] != nil {
		t.Errorf("the driver keeps turns %v, creates %v, ticket %v", d.turns, d.creates, d.tickets[id])
	}
}

// warm makes the driver connect, and create what it creates once.
func warm(ctx context.Context, t *testing.T, d *Driver) {
	t.Helper()
	if _, err := d.readVersion(ctx, true); err != nil {
		t.Fatal(err)
	}
}

// TestReleasedBeforeCreate releases a ticket at every step of its Acquire: no ticket comes to be after
// its release was answered (D13).
func TestReleasedBeforeCreate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		r      driver.Request
		reader bool // is held before
	}{
		"free":          {r: driver.Request{Wait: true}},
		"free try":      {r: driver.Request{}},
		"queued":        {r: driver.Request{Wait: true}, reader: true},
		"shared":        {r: driver.Request{Shared: true, Wait: true}, reader: true},
		"shared try":    {r: driver.Request{Shared: true}, reader: true},
		"exclusive try": {r: driver.Request{}, reader: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.r.Name, c.r.TTL, c.r.Renewed = "x", time.Minute, true
			for step := 1; releasedAt(t, c.r, c.reader, step); step++ {
			}
		})
	}
}

// releasedAt reports whether Acquire came to that step.
func releasedAt(t *testing.T, r driver.Request, reader bool, step int) bool {
	t.Helper()
	ctx, d := inside(t)
	warm(ctx, t, d)
	if reader {
		enqueue(ctx, t, d, driver.Request{Name: "x", ID: "held-1", Shared: true, TTL: time.Minute, Renewed: true, Wait: true})
	}
	conn, _ := dial(t, testbed.SharedZookeeper(t).Addr())
	_, _, changed, err := conn.ExistsW(d.parent("x"))
	if err != nil {
		t.Fatal(err)
	}
	r.ID = fmt.Sprint("released-", step)
	released := make(chan error, 1)
	asked := 0
	short, cancel := context.WithTimeout(ctx, 2*time.Second) // its end is the last step of a request that waits
	defer cancel()
	_, err = d.Acquire(noticed{Context: short, err: func() {
		if asked++; asked == step {
			go func() { released <- d.Release(ctx, r.Hold(0)) }()
			answered(released)
		}
	}}, r)
	if asked < step {
		return false
	}
	if err != nil && !errors.Is(err, driver.ErrLost) && !errors.Is(err, driver.ErrNotAcquired) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("step %d: acquire: %v", step, err)
	}
	if err := <-released; err != nil && !errors.Is(err, driver.ErrLost) {
		t.Errorf("step %d: release: %v", step, err)
	}
	settled(t, conn, d, r.ID)
	select {
	case ev := <-changed:
		if step == 1 {
			t.Errorf("released before anything was sent, and the create was sent: %v", ev)
		}
	default:
	}
	return true
}

// TestReleasedDuringCreate releases a ticket while the answer to its create is due, twice. Both
// releases are answered when it is known what has become of the create, whether or not its connection or
// its session is lost. Then the same ID can be asked for again.
func TestReleasedDuringCreate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		done    bool // the create is carried out before the release is asked for
		lost    bool // its connection is lost
		expired bool // its session is over then
	}{
		"answered late":          {done: true},
		"sent late":              {},
		"done, cut off":          {done: true, lost: true},
		"not done, cut off":      {lost: true},
		"done, session over":     {done: true, lost: true, expired: true},
		"not done, session over": {lost: true, expired: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := testbed.SharedZookeeper(t).Proxy(t)
			ctx, d := insideAt(t, p.Addr())
			conn, _ := dial(t, testbed.SharedZookeeper(t).Addr())
			until := func(what string, is func() bool) {
				t.Helper()
				for !is() {
					if !retry.Sleep(ctx, time.Millisecond, nil) {
						t.Fatal("not in time: ", what)
					}
				}
			}
			warm(ctx, t, d)
			r := driver.Request{TTL: time.Minute, Renewed: true, Wait: true}
			r.Name, r.ID = "lives", "lives-1"
			lives := enqueue(ctx, t, d, r)
			r.Name, r.ID = "x", "released-1"
			if c.done {
				p.HoldReplies(true)
			} else {
				p.Cut()
			}
			acquired, released := make(chan error, 1), make(chan error, 2)
			go func() {
				_, err := d.Acquire(ctx, r)
				acquired <- err
			}()
			until("the create", func() bool { return d.mayHave(r.ID) })
			if c.done {
				until("the node", func() bool { return len(queuedAs(t, conn, d, r.ID)) > 0 })
			}
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			if err := d.Release(short, r.Hold(0)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrLost) {
				t.Errorf("release of what may be there: %v, want the end of its context", err)
			}
			for range 2 {
				go func() { released <- releaseAll(ctx, d, r.Hold(0)) }()
			}
			if c.expired {
				p.Cut()
				until("the end of the session", func() bool {
					there, _, err := conn.Exists(lives)
					return err == nil && !there
				})
			}
			if len(released) > 0 {
				t.Errorf("release of what may be there: %v", <-released)
			}
			if c.lost {
				p.Reset()
			}
			p.Heal()
			for range 2 {
				if err := <-released; err != nil && !errors.Is(err, driver.ErrLost) {
					t.Errorf("release: %v", err)
				}
			}
			if left := queuedAs(t, conn, d, r.ID); len(left) != 0 {
				t.Errorf("%v are queued after the release", left)
			}
			if err := <-acquired; err == nil && !c.done && c.lost {
				t.Error("another create was sent after the release was asked for")
			}
			settled(t, conn, d, r.ID)
			if err := d.Release(ctx, r.Hold(0)); !errors.Is(err, driver.ErrLost) {
				t.Errorf("release of what is gone: %v, want ErrLost", err)
			}
			g, err := d.Acquire(ctx, r)
			if err != nil || len(queuedAs(t, conn, d, r.ID)) != 1 {
				t.Fatalf("asked for again: %v", err)
			}
			if err := d.Release(ctx, r.Hold(g.Token)); err != nil {
				t.Error(err)
			}
			settled(t, conn, d, r.ID)
		})
	}
}

// releaseAll asks for a release until the store has answered, as the core does.
func releaseAll(ctx context.Context, d *Driver, h driver.Hold) error {
	for {
		bound, cancel := context.WithTimeout(ctx, time.Second)
		err := d.Release(bound, h)
		cancel()
		if err == nil || errors.Is(err, driver.ErrLost) || ctx.Err() != nil {
			return err
		}
	}
}

// TestAskedTwiceAtOnce repeats a request before its create is sent: one ticket is queued (D1). A release
// ends both.
func TestAskedTwiceAtOnce(t *testing.T) {
	t.Parallel()
	for _, releases := range []bool{false, true} {
		t.Run(fmt.Sprint("released ", releases), func(t *testing.T) {
			t.Parallel()
			ctx, d := inside(t)
			warm(ctx, t, d)
			conn, _ := dial(t, testbed.SharedZookeeper(t).Addr())
			r := driver.Request{Name: "x", ID: "twice-1", TTL: time.Minute, Renewed: true, Wait: true}
			acquired, released := make(chan error, 2), make(chan error, 1)
			var first, waits sync.Once
			_, err := d.Acquire(noticed{Context: ctx, err: func() {
				first.Do(func() {
					waiting := make(chan struct{})
					go func() {
						_, err := d.Acquire(noticed{Context: ctx, done: func() { waits.Do(func() { close(waiting) }) }}, r)
						acquired <- err
					}()
					<-waiting
					if releases {
						go func() { released <- d.Release(ctx, r.Hold(0)) }()
						answered(released)
					} else {
						answered(acquired)
					}
				})
			}}, r)
			acquired <- err
			for range 2 {
				if err := <-acquired; errors.Is(err, driver.ErrLost) != releases || err != nil && !releases {
					t.Errorf("acquire: %v", err)
				}
			}
			if !releases {
				if queue := queuedAs(t, conn, d, r.ID); len(queue) != 1 {
					t.Errorf("the queue is %v, want one ticket", queue)
				}
				released <- d.Release(ctx, r.Hold(0))
			}
			if err := <-released; errors.Is(err, driver.ErrLost) != releases || err != nil && !releases {
				t.Errorf("release: %v", err)
			}
			settled(t, conn, d, r.ID)
		})
	}
}

// TestReleasedBeforeJoined: a ticket is released after its waiter has read the queue, which shows it. The
// waiter does not wait for the ticket ahead.
func TestReleasedBeforeJoined(t *testing.T) {
	t.Parallel()
	ctx, d := inside(t)
	r := driver.Request{Name: "x", TTL: time.Minute, Renewed: true, Wait: true}
	r.ID = "ahead-1"
	enqueue(ctx, t, d, r)
	r.ID = "waits-1"
	enqueue(ctx, t, d, r)
	r.Joined = func() { t.Error("the observers are notified of a ticket that was released") }
	w := newWaiter(d, d.ticketOf(r.Hold(0)), r)
	d.forget(w.t) // as Release does
	if _, _, err := w.read(ctx); !errors.Is(err, driver.ErrLost) {
		t.Errorf("a waiter whose ticket was released: %v, want ErrLost", err)
	}
}

// TestReleaseNotConfirmed: the request of a release is delayed. The waiter of its ticket is told that the ticket
// has gone when the store has said so, whether its Acquire is repeated or not. The end of a ticket that was held is no
// loss.
func TestReleaseNotConfirmed(t *testing.T) {
	t.Parallel()
	for _, repeated := range []bool{false, true} {
		t.Run(fmt.Sprint("repeated ", repeated), func(t *testing.T) {
			t.Parallel()
			p := testbed.SharedZookeeper(t).Proxy(t)
			ctx, d := insideAt(t, p.Addr())
			d.NotifyLoss(func(h driver.Hold, cause error) { t.Errorf("%s is lost: %v", h.ID, cause) })
			warm(ctx, t, d)
			conn, _ := dial(t, testbed.SharedZookeeper(t).Addr())
			r := driver.Request{TTL: time.Minute, Renewed: true, Wait: true}
			r.Name, r.ID = "y", "held-1"
			held := r.Hold(0)
			if _, err := d.Acquire(ctx, r); err != nil {
				t.Fatal(err)
			}
			watched := func(h driver.Hold) {
				for own := d.ticketOf(h); !watches(d, own); {
					if !retry.Sleep(ctx, time.Millisecond, nil) {
						t.Fatalf("nobody watches the node of %s", h.ID)
					}
				}
			}
			watched(held)
			r.Name, r.ID = "x", "ahead-1"
			enqueue(ctx, t, d, r)
			joined, acquired := make(chan struct{}), make(chan error, 2)
			r.ID, r.Joined = "waits-1", func() { close(joined) }
			go func() {
				_, err := d.Acquire(ctx, r)
				acquired <- err
			}()
			<-joined
			watched(r.Hold(0)) // then it waits for the ticket ahead
			p.Cut()
			short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			for _, h := range []driver.Hold{held, r.Hold(0)} {
				if err := d.Release(short, h); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrLost) {
					t.Errorf("release: %v, want the end of its context", err)
				}
			}
			if answered(acquired) {
				t.Fatalf("acquire: %v, and the ticket may be queued", <-acquired)
			}
			calls := 1
			if repeated {
				calls, r.Joined = 2, nil
				go func() {
					_, err := d.Acquire(ctx, r)
					acquired <- err
				}()
			}
			p.Heal()
			for _, h := range []driver.Hold{held, r.Hold(0)} {
				if err := releaseAll(ctx, d, h); err != nil && !errors.Is(err, driver.ErrLost) {
					t.Errorf("release: %v", err)
				}
			}
			for range calls {
				if err := <-acquired; !errors.Is(err, driver.ErrLost) {
					t.Errorf("acquire: %v, want ErrLost", err)
				}
			}
			settled(t, conn, d, r.ID)
		})
	}
}

// TestReleaseNotSent: a release was asked for, and no request for it was sent. The ticket is there, and is neither
// renewed nor granted again. Its end is no loss.
func TestReleaseNotSent(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, events := dial(t, testbed.SharedZookeeper(t).Addr())
	d, err := New(conn, events, WithPrefix("t/"+rand.Text()))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	d.NotifyLoss(func(h driver.Hold, cause error) { t.Errorf("%s is lost: %v", h.ID, cause) })
	r := driver.Request{Name: "x", ID: "held-1", TTL: time.Minute, Renewed: true, Wait: true}
	g, err := d.Acquire(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(ctx)
	end()
	if err := d.Release(ended, r.Hold(g.Token)); !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrLost) {
		t.Errorf("release: %v, want the end of its context", err)
	}
	if err := d.Renew(ctx, r.Hold(g.Token), time.Minute); !errors.Is(err, driver.ErrLost) {
		t.Errorf("renewal: %v, want ErrLost", err)
	}
	if _, err := d.grant(d.ticketOf(r.Hold(0)), r, time.Now()); err == nil || errors.Is(err, driver.ErrLost) {
		t.Errorf("grant: %v, want another error than ErrLost", err)
	}
	conn.Close()
	for d.mayHave(r.ID) {
		if !retry.Sleep(ctx, time.Millisecond, nil) {
			t.Fatal("the ticket has outlived its connection")
		}
	}
}
