package casqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/conformance/link"
	"github.com/lockerproject/locker/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestConformance runs the suite without a server: waiting takes no time.
func TestConformance(t *testing.T) {
	store := newFake()
	conformance.Run(t, conformance.Harness{
		Bubble: true,
		Open: func(context.Context) (driver.Driver, error) {
			return New(Options{Store: &process{fake: store}, Prefix: "c"}), nil
		},
		OpenLink: func(context.Context) (driver.Driver, conformance.Link, error) {
			i := link.NewInterceptor()
			return New(Options{Store: &cuttable{&process{fake: store}, i}, Prefix: "c"}), i, nil
		},
	})
}

// cuttable is a process whose connection can be cut. Its requests take two seconds at most.
type cuttable struct {
	*process
	i *link.Interceptor
}

func (c *cuttable) pass(ctx context.Context, f func(context.Context) error) error {
	bound, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	var mu sync.Mutex
	err := c.i.Intercept(bound, func() error {
		mu.Lock()
		defer mu.Unlock()
		return f(ctx)
	})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = driver.Unavailable(errors.New("fake: no answer in time"))
	}
	return err
}

func (c *cuttable) Get(ctx context.Context, keys ...string) (docs []Document, err error) {
	err = c.pass(ctx, func(ctx context.Context) (err error) { docs, err = c.process.Get(ctx, keys...); return err })
	return docs, err
}

func (c *cuttable) Put(ctx context.Context, key string, value []byte, read Version, keep time.Duration) (v Version, err error) {
	err = c.pass(ctx, func(ctx context.Context) (err error) { v, err = c.process.Put(ctx, key, value, read, keep); return err })
	return v, err
}

func (c *cuttable) Set(ctx context.Context, key string, value []byte, keep time.Duration) error {
	return c.pass(ctx, func(ctx context.Context) error { return c.process.Set(ctx, key, value, keep) })
}

// A put whose answer was lost is found by the ticket's ID.
func TestAnswerLost(t *testing.T) {
	bubble(t, func(b *bed) {
		e, p := b.open()
		p.once("put", noAnswer)
		b.take(e, request("a", "1"))
		if ids := b.queue(e, "a"); len(ids) != 1 {
			b.Errorf("queue %q, want one ticket", ids)
		}
		p.once("put", noAnswer)
		if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
			b.Errorf("a release that was done, and not answered: %v", err)
		}
		if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != driver.ErrLost { //nolint:errorlint // the sentinel itself
			b.Errorf("a second release: %v", err)
		}
	})
}

// A put that was not answered and is still on its way must not be done after the release of its ticket was
// answered, whether the document exists or not (D13).
func TestLatePut(t *testing.T) {
	for _, exists := range []bool{false, true} {
		bubble(t, func(b *bed) {
			e, p := b.open()
			if exists {
				b.take(e, request("a", "0"))
				if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "0"}); err != nil {
					b.Fatal(err)
				}
			}
			p.with(func(verb, _ string) fault {
				if verb == "put" {
					return late
				}
				return fine
			})
			if _, err := e.Acquire(b.Context(), request("a", "1")); err == nil || errors.Is(err, driver.ErrNoTicket) {
				b.Fatalf("acquire: %v, want an error that may have left a ticket", err)
			}
			p.with(nil)
			if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != driver.ErrLost { //nolint:errorlint // the sentinel itself
				b.Errorf("release: %v", err)
			}
			p.arrive()
			other, _ := b.open()
			if ids := b.queue(other, "a"); len(ids) != 0 {
				b.Errorf("queue %q after a late put (document before: %v)", ids, exists)
			}
		})
	}
}

// A request that has not reached the store leaves no ticket, and says so.
func TestNoTicket(t *testing.T) {
	bubble(t, func(b *bed) {
		e, p := b.open()
		p.with(func(string, string) fault { return notDone })
		if _, err := e.Acquire(b.Context(), request("a", "1")); !errors.Is(err, driver.ErrNoTicket) || !errors.Is(err, errNotDone) {
			b.Errorf("acquire without a store: %v", err)
		}
	})
}

// Tokens grow even if the store loses everything, whatever was queued.
func TestTokensGrow(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		other, _ := b.open()
		last := uint64(0)
		for i := range 20 {
			id := fmt.Sprint(i)
			g := b.take([]*Engine{e, other}[i%2], request("a", id))
			if g.Token <= last {
				b.Fatalf("token %d after %d", g.Token, last)
			}
			last = g.Token
			switch i % 4 {
			case 0:
				time.Sleep(2 * keepEmpty)
				fallthrough
			case 1:
				b.lose("")
			default:
				_ = e.Release(b.Context(), driver.Hold{Name: "a", ID: id})
			}
		}
	})
}

// A heartbeat that is answered when the life of a ticket is over comes too late: somebody may have read the one
// before, and be about to remove the ticket.
func TestLateHeartbeat(t *testing.T) {
	for _, c := range []struct {
		rest, delay time.Duration
		lost        bool
	}{
		{0, 9 * time.Second, false},
		{0, 11 * time.Second, true},
		{5 * time.Second, 4 * time.Second, false},
		{5 * time.Second, 6 * time.Second, true},
	} {
		bubble(t, func(b *bed) {
			e, p := b.open()
			g := b.take(e, request("a", "1"))
			time.Sleep(c.rest)
			p.with(func(verb, _ string) fault {
				if verb == "set" {
					time.Sleep(c.delay)
				}
				return fine
			})
			h := driver.Hold{Name: "a", ID: "1", Token: g.Token}
			err := e.Renew(b.Context(), h, 10*time.Second)
			if errors.Is(err, driver.ErrLost) != c.lost {
				b.Errorf("a renewal after %v that took %v: %v", c.rest, c.delay, err)
			} else if ids := b.queue(e, "a"); c.lost && len(ids) > 0 {
				b.Errorf("queue %q after the lease was over", ids)
			}
		})
	}
}

// A reading of a heartbeat says nothing about a ticket that was written after it: a process that was taken for dead
// lives again, holds, and sends heartbeats, which the other has not read since.
func TestOldReadingOfHeartbeat(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		x, _ := b.open()
		short := func(id string) driver.Request {
			r := request("a", id)
			r.TTL = minTTL
			return r
		}
		b.take(e, short("1"))
		if err := <-b.waits(x, short("2")); err != nil { // when it has taken e for dead
			b.Fatal(err)
		}
		if err := x.Release(b.Context(), driver.Hold{Name: "a", ID: "2"}); err != nil {
			b.Fatal(err)
		}
		g := b.take(e, short("3"))
		for range 10 {
			if _, err := x.Acquire(b.Context(), short("4")); !errors.Is(err, driver.ErrNotAcquired) {
				b.Fatalf("while another holds: %v", err)
			}
			time.Sleep(minTTL / 4)
			if err := e.Renew(b.Context(), driver.Hold{Name: "a", ID: "3", Token: g.Token}, minTTL); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A ticket that was removed and queued again, because its request was repeated, is another ticket to those who have
// not looked meanwhile.
func TestTicketIsQueuedAgain(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		x, _ := b.open()
		b.take(e, request("b", "0")) // x reads the heartbeat of e for this
		b.waits(x, request("b", "1"))
		short := request("a", "2")
		short.TTL = minTTL
		h := driver.Hold{Name: "a", ID: "2", Token: b.take(e, short).Token}
		try := request("a", "3")
		if _, err := x.Acquire(b.Context(), try); !errors.Is(err, driver.ErrNotAcquired) {
			b.Fatalf("while another holds: %v", err)
		}
		time.Sleep(2 * minTTL)
		if err := e.Release(b.Context(), h); err != nil {
			b.Fatal(err)
		}
		b.take(e, short)
		if _, err := x.Acquire(b.Context(), try); !errors.Is(err, driver.ErrNotAcquired) {
			b.Errorf("while another holds again: %v", err)
		}
	})
}

// Whoever has just arrived must see no sign of life for the whole time, however long there was none before.
func TestNewObserver(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		b.take(e, request("a", "1"))
		_ = e.Close() // as if it had died
		time.Sleep(9 * time.Second)
		other, _ := b.open()
		begun := time.Now()
		if err := <-b.waits(other, request("a", "2")); err != nil {
			b.Fatal(err)
		}
		took := time.Since(begun)
		if bound := other.Bounds(10 * time.Second).Crash; took < 10*time.Second || took > bound {
			b.Errorf("granted after %v, want 10s to %v", took, bound)
		}
	})
}

// A sign of life in the last moment counts, whichever it is; and a process that lives is never taken for dead.
func TestSignsOfLife(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		g := b.take(e, request("a", "1"))
		other, _ := b.open()
		got := b.waits(other, request("a", "2"))
		for range 5 {
			time.Sleep(9900 * time.Millisecond)
			if err := e.Renew(b.Context(), driver.Hold{Name: "a", ID: "1", Token: g.Token}, 10*time.Second); err != nil {
				b.Fatal(err)
			}
		}
		select {
		case err := <-got:
			b.Fatalf("granted beside a holder that lives (%v)", err)
		default:
		}
		if ids := b.queue(e, "a"); !slices.Equal(ids, []string{"1", "2"}) {
			b.Errorf("queue %q", ids)
		}
	})
}

// A conclusion holds only if the document still is what it was drawn from: a lease that is begun anew while the
// removal is on its way keeps the ticket. The observer's clock runs too fast here.
func TestConclusionIsChecked(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		r := request("a", "1")
		r.Renewed = false
		g := b.take(e, r)
		other, p := b.open()
		got := b.waits(other, request("a", "2"))
		var renewed atomic.Bool
		p.with(func(verb, _ string) fault {
			if verb == "put" && !renewed.Swap(true) {
				if err := e.Renew(b.Context(), r.Hold(g.Token), 10*time.Second); err != nil {
					b.Error(err)
				}
			}
			return fine
		})
		other.mu.Lock()
		f := other.files[other.key("a")]
		seen := f.seen["1"]
		seen.since = seen.since.Add(-time.Hour)
		f.seen["1"] = seen
		other.mu.Unlock()
		time.Sleep(5 * time.Second)
		if ids := b.queue(other, "a"); !renewed.Load() || !slices.Equal(ids, []string{"1", "2"}) {
			b.Errorf("queue %q (removal tried: %v)", ids, renewed.Load())
		}
		if err := <-got; err != nil {
			b.Fatal(err)
		}
	})
}

// However many locks a process holds, renewing them writes once.
func TestOneHeartbeat(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		var rs []driver.Renewal
		for i := range 500 {
			r := request(fmt.Sprint("n", i), fmt.Sprint(i))
			g := b.take(e, r)
			rs = append(rs, driver.Renewal{Hold: r.Hold(g.Token), TTL: r.TTL})
		}
		for range 10 {
			sets, puts, gets := b.count("set"), b.count("put"), b.count("get")
			time.Sleep(3 * time.Second)
			if err := errors.Join(e.RenewAll(b.Context(), rs)...); err != nil {
				b.Fatal(err)
			}
			if sets, puts, gets = b.count("set")-sets, b.count("put")-puts, b.count("get")-gets; sets != 1 || puts > 0 || gets > 5 {
				b.Errorf("a renewal of 500 locks: %d heartbeats, %d other writes, %d readings", sets, puts, gets)
			}
		}
		time.Sleep(9 * time.Second)
		for range 20 { // the store forgets no document of a lock that is held
			if err := errors.Join(e.RenewAll(b.Context(), rs)...); err != nil {
				b.Fatal(err)
			}
			time.Sleep(9 * time.Second)
		}
	})
}

// Names whose hashes are equal are different locks.
func TestCollisions(t *testing.T) {
	bubble(t, func(b *bed) {
		same := func(o *Options) { o.Hash = func(string) string { return "same" } }
		e, _ := b.open(same)
		other, _ := b.open(same)
		tokens := make(map[string]uint64)
		for i := range 10 {
			name := strings.Repeat("x", i+1)
			tokens[name] = b.take(e, request(name, fmt.Sprint(i))).Token
		}
		for i := range 10 {
			name := strings.Repeat("x", i+1)
			if err := other.Break(b.Context(), name, tokens[name]); err != nil {
				b.Error(err)
			}
			for j := range 10 {
				if n := len(b.queue(other, strings.Repeat("x", j+1))); (n == 1) != (j > i) {
					b.Errorf("%d tickets of name %d when %d was broken", n, j, i)
				}
			}
		}
	})
}

// Waiters of one process share a writer.
func TestSharedWriter(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		b.take(e, request("a", "holder"))
		puts := b.count("put")
		var group sync.WaitGroup
		for i := range 100 {
			group.Go(func() { b.waits(e, request("a", fmt.Sprint(i))) })
		}
		group.Wait()
		if n := b.count("put") - puts; n > 5 {
			b.Errorf("%d writes for 100 waiters that came at once", n)
		}
		if n := len(b.queue(e, "a")); n != 101 {
			b.Errorf("%d tickets", n)
		}
	})
}

// A ticket for which a queue has no space is refused, and no other.
func TestTooLarge(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		b.take(e, request("a", "0"))
		queued, refused := 0, 0
		for i := range 100 {
			r := request("a", fmt.Sprint("w", i))
			r.Wait, r.Note = true, strings.Repeat("n", 500)
			joined := make(chan struct{})
			r.Joined = func() { close(joined) }
			got := make(chan error, 1)
			go func() { _, err := e.Acquire(b.Context(), r); got <- err }()
			select {
			case <-joined:
				queued++
			case err := <-got:
				if !errors.Is(err, ErrTooLarge) || !errors.Is(err, driver.ErrNoTicket) || driver.IsUnavailable(err) {
					b.Fatalf("a ticket too many: %v", err)
				}
				refused++
			}
		}
		if queued == 0 || refused == 0 || len(b.queue(e, "a")) != queued+1 {
			b.Errorf("%d queued, %d refused, %d shown", queued, refused, len(b.queue(e, "a")))
		}
		if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "0"}); err != nil {
			b.Error(err)
		}
	})
}

// A document of somebody else is refused, and left as it is.
func TestForeignDocument(t *testing.T) {
	for _, content := range []string{"not ours", `{"v":2}`} {
		bubble(t, func(b *bed) {
			e, p := b.open()
			held := request("held", "1")
			g := b.take(e, held)
			if err := p.Set(b.Context(), e.key("a"), []byte(content), time.Hour); err != nil {
				b.Fatal(err)
			}
			_, err := e.Acquire(b.Context(), request("a", "2"))
			if err == nil || driver.IsUnavailable(err) || !errors.Is(err, driver.ErrNoTicket) {
				b.Errorf("acquire: %v", err)
			}
			if _, err := e.Inspect(b.Context(), "a"); err == nil {
				b.Error("inspect: no error")
			}
			errs := e.RenewAll(b.Context(), []driver.Renewal{
				{Hold: driver.Hold{Name: "a", ID: "3"}, TTL: time.Second}, {Hold: held.Hold(g.Token), TTL: 10 * time.Second},
			})
			if errs[0] == nil || errs[1] != nil {
				b.Errorf("renewals beside it: %v", errs)
			}
			if docs, _ := p.Get(b.Context(), e.key("a")); string(docs[0].Value) != content {
				b.Errorf("it is now %q", docs[0].Value)
			}
		})
	}
}

// watching is a store that tells of changes.
type watching struct{ *process }

func (w watching) Watch(ctx context.Context, key string, changed func()) error {
	for last := (Version{0, 1}); ; {
		w.fake.mu.Lock()
		if w.fake.changed == nil {
			w.fake.changed = make(chan struct{})
		}
		v, wait := w.find(key).Version, w.fake.changed
		w.fake.mu.Unlock()
		if v != last {
			last = v
			changed()
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// With a store that tells of changes a hand-off takes some requests, and waiting takes none but looks for the
// dead.
func TestWatch(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		other, _ := b.open(func(o *Options) { o.Store = watching{o.Store.(*process)} })
		b.take(e, request("a", "1"))
		got := b.waits(other, request("a", "2"))
		time.Sleep(2 * time.Second)
		gets := b.count("get")
		time.Sleep(2 * time.Second)
		if n := b.count("get") - gets; n > 5 {
			b.Errorf("%d readings in two seconds of waiting", n)
		}
		begun := time.Now()
		if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
			b.Fatal(err)
		}
		if err := <-got; err != nil || time.Since(begun) > 2*time.Millisecond {
			b.Errorf("granted %v after the release (%v)", time.Since(begun), err)
		}
	})
}

// Who inspects a queue removes the dead from it: what was not shown does not come back.
func TestInspectRemoves(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		g := b.take(e, request("a", "1"))
		other, _ := b.open()
		for begun := time.Now(); len(b.queue(other, "a")) > 0; time.Sleep(200 * time.Millisecond) {
			if time.Since(begun) > other.Bounds(10*time.Second).Crash {
				b.Fatal("a ticket without a sign of life is shown")
			}
		}
		if err := e.Renew(b.Context(), driver.Hold{Name: "a", ID: "1", Token: g.Token}, 10*time.Second); !errors.Is(err, driver.ErrLost) {
			b.Errorf("renewal of what was not shown: %v", err)
		}
		if ids := b.queue(other, "a"); len(ids) > 0 {
			b.Errorf("queue %q: it has come back", ids)
		}
	})
}

// The dead waiters of a queue leave it together.
func TestDeadWaiters(t *testing.T) {
	bubble(t, func(b *bed) {
		holder, _ := b.open()
		r := request("a", "0")
		r.TTL = time.Hour
		b.take(holder, r)
		for i := range 5 {
			e, _ := b.open()
			b.waits(e, request("a", fmt.Sprint("dead", i)))
			defer func() { _ = e.Close() }()
			time.AfterFunc(20*time.Second, func() { _ = e.Close() })
		}
		live, _ := b.open()
		got := b.waits(live, request("a", "live"))
		time.Sleep(20 * time.Second)
		if n := len(b.queue(live, "a")); n != 7 {
			b.Fatalf("%d tickets while all live", n)
		}
		if err := holder.Release(b.Context(), driver.Hold{Name: "a", ID: "0"}); err != nil {
			b.Fatal(err)
		}
		begun := time.Now()
		if err := <-got; err != nil {
			b.Fatal(err)
		}
		if took, bound := time.Since(begun), live.Bounds(10*time.Second).Liveness; took > bound {
			b.Errorf("five dead waiters delayed the queue by %v, want at most %v", took, bound)
		}
	})
}

// Who is refused has read the queue: what was read before may be old.
func TestTryReads(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		other, _ := b.open()
		g := b.take(other, request("a", "1"))
		if _, err := e.Acquire(b.Context(), request("a", "2")); err != driver.ErrNotAcquired { //nolint:errorlint // the sentinel itself
			b.Fatalf("beside a holder: %v", err)
		}
		puts := b.count("put")
		if _, err := e.Acquire(b.Context(), request("a", "2")); err != driver.ErrNotAcquired || b.count("put") != puts { //nolint:errorlint // the sentinel itself
			b.Errorf("a refused try: %v, and %d writes", err, b.count("put")-puts)
		}
		if err := other.Release(b.Context(), driver.Hold{Name: "a", ID: "1", Token: g.Token}); err != nil {
			b.Fatal(err)
		}
		b.take(e, request("a", "3"))
	})
}

// A waiter whose last heartbeat was long ago may be dead to others. It takes no provisional lease: it writes that it
// holds, which fails if it was removed.
func TestStaleWaiterClaims(t *testing.T) {
	for _, removed := range []bool{false, true} {
		bubble(t, func(b *bed) {
			holder, _ := b.open()
			g := b.take(holder, request("a", "1"))
			e, p := b.open()
			got := b.waits(e, request("a", "2"))
			p.with(func(verb, _ string) fault { // heartbeats do not arrive, everything else does
				if verb == "set" {
					return notDone
				}
				return fine
			})
			time.Sleep(3 * time.Second)
			if removed {
				p.with(func(verb, _ string) fault {
					if verb != "put" {
						return map[string]fault{"set": notDone}[verb]
					}
					p.with(nil)
					if err := holder.Break(b.Context(), "a", g.Token+1); err != nil {
						b.Error(err)
					}
					return fine
				})
			}
			b.queue(holder, "a")
			puts := b.count("put")
			if err := holder.Release(b.Context(), driver.Hold{Name: "a", ID: "1", Token: g.Token}); err != nil {
				b.Fatal(err)
			}
			if err := <-got; errors.Is(err, driver.ErrLost) != removed {
				b.Errorf("granted with %v (removed: %v)", err, removed)
			}
			if n := b.count("put") - puts; n != 2 && !removed {
				b.Errorf("%d writes, want that of the release and that of the claim", n)
			}
		})
	}
}

// A minimum hold lasts, though the waiter's process dies right after its grant (D20).
func TestMinHoldOfWaiter(t *testing.T) {
	bubble(t, func(b *bed) {
		holder, _ := b.open()
		g := b.take(holder, request("a", "1"))
		e, _ := b.open()
		r := request("a", "2")
		r.MinHold = 9 * time.Second
		got := b.waits(e, r)
		if err := holder.Release(b.Context(), driver.Hold{Name: "a", ID: "1", Token: g.Token}); err != nil {
			b.Fatal(err)
		}
		if err := <-got; err != nil {
			b.Fatal(err)
		}
		begun := time.Now()
		_ = e.Close()
		if err := <-b.waits(holder, request("a", "3")); err != nil || time.Since(begun) < r.MinHold {
			b.Errorf("granted after %v of a minimum hold of %v (%v)", time.Since(begun), r.MinHold, err)
		}
	})
}
