package sim

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
	"github.com/lockerproject/locker/internal/retry"
)

// bank is a server that does exactly what package driver asks for: the queues of the
// memory driver, behind a network. It survives its restarts. It is the world in which
// the core is tried: whatever goes wrong here is not a store's fault.
type bank struct {
	s       *server
	memory  *memory.Driver
	forgets bool // it does not keep which tickets were removed: the core has to look for late requests

	least   time.Duration // of a lease: the core has to end a shorter one
	claims  bool          // a grant counts from the request for its ticket, however old that is
	timeout time.Duration // how long a client waits for an answer to one request; 0: as long as the core does
	quiet   time.Duration // … and for a grant, before it asks again: longer than the server waits
	lingers bool          // its clients wait a little longer for an answer than their callers do, as they may

	mu      sync.Mutex
	clients []*memory.Driver
	waits   map[string]*bankWait // by ticket ID
	removed map[string]bool      // tickets that were released: a late Acquire must not bring them back
}

// bankWait is a ticket that was queued, at the server.
type bankWait struct {
	done  chan struct{}
	grant driver.Grant
	err   error
}

func newBank(s *server) *bank {
	rnd := newStream(s.w.seed, s.name+" forgets")
	b := &bank{s: s, memory: memory.New(), forgets: rnd.one(2), timeout: bankTimeout, quiet: bankTimeout, waits: make(map[string]*bankWait), removed: make(map[string]bool)}
	if rnd.one(4) {
		b.least = rnd.between(time.Second, time.Minute)
	}
	if rnd.one(2) {
		b.timeout = 0
	}
	b.claims = rnd.one(2)
	if rnd.one(2) {
		b.quiet = bankQuiet
	}
	b.lingers = rnd.one(2)
	return b
}

func (*bank) restart() bool { return false }

func (b *bank) has(name string, token uint64) bool {
	tickets, _ := b.memory.Inspect(context.Background(), name)
	return slices.ContainsFunc(tickets, func(t driver.Ticket) bool { return t.Token == token && t.Held })
}

// there reports whether a ticket is there, of a call that has sent its request.
func (b *bank) there(name, id string) bool {
	b.mu.Lock()
	w := b.waits[id]
	b.mu.Unlock()
	if w == nil {
		return false
	}
	select {
	case <-w.done:
		return w.err == nil && b.has(name, w.grant.Token)
	default:
		return true
	}
}

func (b *bank) leftovers() []string {
	names, _ := b.memory.List(context.Background())
	return names
}

func (b *bank) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range b.clients {
		_ = d.Close()
	}
	_ = b.memory.Close()
}

// bankLiveness is how long the server keeps the waiting tickets of a process of which it hears nothing.
const bankLiveness = 2 * time.Second

// bankLatest is how late an acquisition may arrive: within the time in which the core looks for it.
const bankLatest = 15 * time.Second

// bankQuiet is how long the most patient clients wait for a grant before they ask again: a loss that was not told is known then.
const bankQuiet = 25 * time.Second

// bankLinger is how long a client may wait for an answer when its caller has left: less than the 50 ms of package driver.
const bankLinger = 40 * time.Millisecond

// linger returns a context that ends that much later.
func (c *bankClient) linger(ctx context.Context) (context.Context, context.CancelFunc) {
	late, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		c.p.w.at(time.Now().Add(bankLinger), func() { cancel(context.Cause(ctx)) })
	})
	return late, func() {
		stop()
		cancel(nil)
	}
}

// bankTimeout is how long most clients wait for an answer, and all where no caller of the core bounds it.
const bankTimeout = 7 * time.Second

// bankClient is the driver of one process.
type bankClient struct {
	b      *bank
	server *memory.Driver // what the server does for the process
	p      *path
	ctx    context.Context
	cancel context.CancelFunc
	lost   func(driver.Hold, error)
}

func openBank(s *server, process string) (driver.Driver, *path, error) {
	b := s.model.(*bank)
	c := &bankClient{b: b, server: b.memory.Join(), p: newPath(s, process)}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.server.NotifyLoss(func(h driver.Hold, cause error) {
		at, _ := c.p.arrival(c.p.rnd)
		s.w.at(at, func() {
			if !c.p.isDead() && c.ctx.Err() == nil && c.lost != nil {
				c.lost(h, cause)
				s.w.pushed(process, h)
			}
		})
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clients = append(b.clients, c.server)
	return c, c.p, nil
}

func (*bankClient) String() string { return "bank" }

// Bounds implements driver.Bounder.
func (c *bankClient) Bounds(ttl time.Duration) driver.Bounds {
	return driver.Bounds{MinTTL: c.b.least, Crash: max(ttl, c.b.least) + 100*time.Millisecond, Liveness: bankLiveness + 2*time.Second}
}

// NotifyLoss implements driver.LossNotifier.
func (c *bankClient) NotifyLoss(f func(driver.Hold, error)) { c.lost = f }

// Close implements driver.Driver.
func (c *bankClient) Close() error { c.cancel(); return nil }

// ask sends a request that is answered with an error or nil. Its caller has to bound it.
func ask[T any](ctx context.Context, c *bankClient, what string, serve func(context.Context) (T, error)) (T, error) {
	if bound := c.b.timeout; bound > 0 || len(c.p.w.servers) > 1 || rejoins(ctx) {
		return askWithin(ctx, c, bankTimeout, what, serve)
	}
	begun := time.Now()
	a, err := askWithin(ctx, c, patience, what, serve)
	if took := time.Since(begun); took > locker.DefaultAnswerTimeout+100*time.Millisecond {
		c.p.w.fail("%s: a request without a bound has taken %v: %s: %v", c.p.process, took, what, err)
	}
	return a, err
}

// rejoins reports whether a call takes another ticket after it has lost one: it is waiting, and nothing bounds that.
func rejoins(ctx context.Context) bool {
	c, _ := ctx.Value(callKey{}).(*call)
	if c == nil {
		return false
	}
	c.p.o.mu.Lock()
	defer c.p.o.mu.Unlock()
	for _, p := range c.parts {
		if p.rejoined {
			return true
		}
	}
	return false
}

// asks notes the ticket that a call asks for.
func asks(ctx context.Context, r driver.Request) {
	if c, _ := ctx.Value(callKey{}).(*call); c != nil {
		c.p.o.mu.Lock()
		defer c.p.o.mu.Unlock()
		c.parts[r.Name].tickets = append(c.parts[r.Name].tickets, r.ID)
	}
}

// askWithin sends a request, and waits for the answer for no longer than that.
func askWithin[T any](ctx context.Context, c *bankClient, bound time.Duration, what string, serve func(context.Context) (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	if c.ctx.Err() != nil {
		var none T
		return none, driver.ErrClosed
	}
	asked := ctx
	ctx, stop := context.WithTimeout(ctx, bound)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(driver.ErrClosed) })()
	a, err := request(ctx, c.p, what, func(served context.Context) answer {
		v, err := serve(served)
		return answer{v, err}
	})
	switch {
	case c.ctx.Err() != nil && err != nil:
		return a.value, driver.ErrClosed
	case err != nil && asked.Err() != nil:
		return a.value, context.Cause(asked)
	case err != nil:
		return a.value, driver.Unavailable(err)
	}
	return a.value, a.err
}

// Acquire implements driver.Driver.
func (c *bankClient) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	asks(ctx, r)
	asked, joined := time.Now(), r.Joined
	asking := ctx
	if c.b.lingers {
		var stop context.CancelFunc
		asking, stop = c.linger(ctx)
		defer stop()
	}
	g, err := ask(asking, c, "acquire "+r.Name+" "+c.p.w.ticket(r.ID), func(context.Context) (driver.Grant, error) {
		if time.Since(asked) > bankLatest {
			return driver.Grant{}, driver.Unavailable(errSilence)
		}
		return c.b.acquire(c, r)
	})
	if !errors.Is(err, errQueued) {
		if asked.Before(g.Asked) { // else the lease began with an earlier request for this ticket
			g.Asked = asked
		}
		return g, err
	}
	if joined != nil {
		joined()
	}
	pause := retry.Backoff{First: 20 * time.Millisecond, Most: 500 * time.Millisecond}
	var last error
	for {
		g, err = askWithin(ctx, c, c.b.quiet, "wait for "+r.Name+" "+c.p.w.ticket(r.ID), func(served context.Context) (driver.Grant, error) { return c.b.wait(served, r.ID) })
		if asked.Before(g.Asked) { // as above
			g.Asked = asked
		}
		if err == nil && c.b.claims && r.Renewed && r.MinHold == 0 {
			return g, nil
		}
		if err == nil { // the lease has to count from a request that is older than the grant, or from one of its own
			g.Asked = time.Now()
			err = c.renew(ctx, bankTimeout, r.Hold(g.Token), r.TTL)
		}
		switch {
		case err == nil, errors.Is(err, driver.ErrLost), errors.Is(err, driver.ErrClosed):
			return g, err
		case ctx.Err() != nil:
			return g, errors.Join(context.Cause(ctx), last)
		case errors.Is(err, errStillQueued):
			last = nil
			continue
		}
		last = err
		retry.Sleep(ctx, pause.Next(), c.ctx.Done())
	}
}

var (
	errQueued      = errors.New("queued")
	errStillQueued = errors.New("still queued")
)

// acquire is done at the server.
func (b *bank) acquire(c *bankClient, r driver.Request) (driver.Grant, error) {
	b.mu.Lock()
	if b.removed[r.ID] && !b.forgets {
		b.mu.Unlock()
		return driver.Grant{}, driver.ErrLost
	}
	w := &bankWait{done: make(chan struct{})}
	b.waits[r.ID] = w
	b.mu.Unlock()
	queued := make(chan struct{})
	r.Joined = func() { close(queued) }
	go func() {
		w.grant, w.err = c.server.Acquire(context.Background(), r)
		close(w.done)
	}()
	select {
	case <-w.done:
		return w.grant, w.err
	case <-queued:
	}
	go b.watch(c, w, r)
	return driver.Grant{}, errQueued
}

// watch removes a waiting ticket whose process is silent.
func (b *bank) watch(c *bankClient, w *bankWait, r driver.Request) {
	for silent := 0; silent <= int(bankLiveness/time.Second); {
		select {
		case <-w.done:
			return
		case <-time.After(time.Second):
		}
		c.p.mu.Lock()
		if c.p.dead || c.p.cut.After(time.Now()) || c.ctx.Err() != nil {
			silent++
		} else {
			silent = 0
		}
		c.p.mu.Unlock()
	}
	_ = c.server.Release(context.Background(), r.Hold(0))
}

// wait answers when a ticket is granted, or gone, or after some seconds.
func (b *bank) wait(served context.Context, id string) (driver.Grant, error) {
	b.mu.Lock()
	w := b.waits[id]
	b.mu.Unlock()
	select {
	case <-w.done:
		return w.grant, w.err
	case <-time.After(5 * time.Second):
	case <-served.Done():
	}
	return driver.Grant{}, errStillQueued
}

// renew renews one lease for the client itself.
func (c *bankClient) renew(ctx context.Context, bound time.Duration, h driver.Hold, ttl time.Duration) error {
	_, err := askWithin(ctx, c, bound, "renew "+h.Name, func(ctx context.Context) (bool, error) { return true, c.server.Renew(ctx, h, ttl) })
	return err
}

// Renew implements driver.Driver.
func (c *bankClient) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return c.RenewAll(ctx, []driver.Renewal{{Hold: h, TTL: ttl}})[0]
}

// RenewAll implements driver.BatchRenewer.
func (c *bankClient) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	errs, err := ask(ctx, c, "renew "+rs[0].Name, func(ctx context.Context) ([]error, error) {
		errs := make([]error, len(rs))
		for i, r := range rs {
			errs[i] = c.server.Renew(ctx, r.Hold, r.TTL)
		}
		return errs, nil
	})
	if err != nil {
		errs = make([]error, len(rs))
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

// Release implements driver.Driver.
func (c *bankClient) Release(ctx context.Context, h driver.Hold) error {
	_, err := ask(ctx, c, "release "+h.Name+" "+c.p.w.ticket(h.ID), func(ctx context.Context) (bool, error) {
		c.b.mu.Lock()
		c.b.removed[h.ID] = true
		c.b.mu.Unlock()
		return true, c.server.Release(ctx, h)
	})
	return err
}

// Inspect implements driver.Driver.
func (c *bankClient) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	return ask(ctx, c, "inspect "+name, func(ctx context.Context) ([]driver.Ticket, error) { return c.server.Inspect(ctx, name) })
}

// List implements driver.Lister.
func (c *bankClient) List(ctx context.Context) ([]string, error) {
	return ask(ctx, c, "list", c.server.List)
}

// Break implements driver.Breaker.
func (c *bankClient) Break(ctx context.Context, name string, token uint64) error {
	_, err := ask(ctx, c, "break "+name, func(ctx context.Context) (bool, error) { return true, c.server.Break(ctx, name, token) })
	return err
}
