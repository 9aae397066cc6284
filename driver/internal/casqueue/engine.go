package casqueue

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/life"
)

// Options are what differs between stores.
type Options struct {
	Store  Store
	Prefix string                   // of all keys
	MaxTTL time.Duration            // the store has to keep a document for 5 % and a minute longer; 0: a century
	Hash   func(name string) string // of a name, in its key; nil: 128 bits of its SHA-256

	// Latency is how long a request may take on a healthy store; 0: 100 ms. The stated bounds have time for four
	// requests, and the shortest lease for ten.
	Latency time.Duration

	// ClockError is by how much less than the time that has passed the difference of two readings may be, Earliest of
	// the second and Latest of the first, if the Store is a Clock.
	ClockError time.Duration

	// Pause waits for less than two milliseconds, more exactly than Go's timers do, or reports false at once. One
	// goroutine calls it. If it is nil, the timers have to do.
	Pause func(d time.Duration) bool

	// LatePuts says that the store may do an unanswered Put even after it has forgotten the document: a server that
	// stands still may hold the request while others go on. So the engine creates documents without tickets.
	LatePuts bool
}

// Engine is a driver without the methods that depend on the store, such as String.
type Engine struct {
	opts    Options
	store   Store
	process string // the ID of this process, or rather of this Engine

	life    *life.Life     // ends with Close; it has all goroutines
	notices sync.WaitGroup // those that tell others something; none is added after Close has begun

	wake  chan struct{} // wakes the background task
	start sync.Once     // starts it

	// mu guards what follows, and the fields of files and tickets. It is never held during a request.
	mu         sync.Mutex
	closing    bool // Close has begun
	files      map[string]*file
	forgot     time.Time
	tickets    map[string]*ticket   // those of this process that wait or are held, by ID
	waiting    map[*ticket]struct{} // those that wait
	entering   map[string]int       // how many tickets are asked for, by the keys of their queues
	heartbeats map[string]*sighting // by process
	sent       uint64               // counts heartbeats and notifications: no two have the same content
	highest    uint64               // the highest number of a ticket that this process has seen
	heartbeat  time.Time            // when the last answered heartbeat was sent
	storeErr   error                // of the last request
	watches    bool                 // the store reports notifications
	clock      string               // which one was read last
	notified   bool                 // it has reported one, and the queues have not been read since
}

var (
	_ driver.Driver       = (*Engine)(nil)
	_ driver.BatchRenewer = (*Engine)(nil)
	_ driver.Breaker      = (*Engine)(nil)
	_ driver.Shortener    = (*Engine)(nil)
	_ driver.Bounder      = (*Engine)(nil)
	_ driver.Pinger       = (*Engine)(nil)
)

var (
	errBroken  = fmt.Errorf("%w: the ticket was removed from the queue", driver.ErrLost)
	errLapsed  = fmt.Errorf("%w: the lease is over", driver.ErrLost)
	errNotOurs = fmt.Errorf("%w: renewal of a ticket of another process", driver.ErrUnsupported)
)

const (
	latency = 100 * time.Millisecond     // of a request, unless the driver says otherwise
	century = 100 * 365 * 24 * time.Hour // the longest lease: its margins are a duration too
)

// New makes an Engine.
func New(o Options) *Engine {
	if o.Hash == nil {
		o.Hash = hash
	}
	if o.Latency == 0 {
		o.Latency = latency
	}
	if o.MaxTTL == 0 {
		o.MaxTTL = century
	}
	return &Engine{
		opts: o, life: life.New(), store: o.Store, process: rand.Text(), wake: make(chan struct{}, 1),
		files: make(map[string]*file), tickets: make(map[string]*ticket), waiting: make(map[*ticket]struct{}),
		heartbeats: make(map[string]*sighting), entering: make(map[string]int),
	}
}

func hash(name string) string {
	sum := sha256.Sum256([]byte(name))
	return hex.EncodeToString(sum[:16])
}

// The keys of the documents: of queues, of the heartbeat of a process, and of its notifications.
func (e *Engine) key(name string) string             { return e.opts.Prefix + ":q:" + e.opts.Hash(name) }
func (e *Engine) heartbeatKey(process string) string { return e.opts.Prefix + ":h:" + process }
func (e *Engine) notifyKey(process string) string    { return e.opts.Prefix + ":n:" + process }

// unique returns a content that no heartbeat or notification had before. With mu held.
func (e *Engine) unique() []byte {
	e.sent++
	return strconv.AppendUint([]byte(e.process+"-"), e.sent, 36)
}

// Bounds implements driver.Bounder.
func (e *Engine) Bounds(ttl time.Duration) driver.Bounds {
	requests := 4 * e.opts.Latency // to observe, and to change the queue
	bound := func(life time.Duration, samples int) time.Duration {
		return time.Duration(samples)*sampleEvery(life) + patience(life) + requests
	}
	ttl = e.lease(ttl)
	// All holders are always watched. Waiters beyond the window are watched once those in it were silent for two samples.
	return driver.Bounds{MinTTL: e.minTTL(), MaxTTL: e.opts.MaxTTL, Crash: bound(ttl, 1) + e.opts.ClockError, Liveness: bound(min(ttl, liveness), 3)}
}

// minTTL is the shortest lease that leaves a renewal, of two or three requests, enough time.
func (e *Engine) minTTL() time.Duration { return 10 * e.opts.Latency }

// lease is the length of the lease that the engine gives for ttl.
func (e *Engine) lease(ttl time.Duration) time.Duration {
	return max(min(ttl, e.opts.MaxTTL), e.minTTL())
}

// Release implements driver.Driver.
func (e *Engine) Release(ctx context.Context, h driver.Hold) error {
	return e.remove(ctx, h.Name, func(r *record) bool { return r.ID == h.ID })
}

// Break implements driver.Breaker.
func (e *Engine) Break(ctx context.Context, name string, token uint64) error {
	return e.remove(ctx, name, func(r *record) bool { return r.Token == token })
}

// remove removes a ticket of name. If an earlier try was not answered and the ticket is not there, that try has
// removed it.
func (e *Engine) remove(ctx context.Context, name string, which func(*record) bool) error {
	ctx, done := e.bind(ctx)
	defer done()
	c := &change{urgent: true}
	c.apply = func(d *document, fresh bool) (bool, error) {
		q := d.find(name)
		for i := range q.Tickets {
			if r := &q.Tickets[i]; which(r) {
				if t := e.tickets[r.ID]; t != nil && t.state == held {
					q.held(max(0, time.Since(t.since)))
				}
				q.remove(i)
				return true, nil
			}
		}
		switch {
		case !fresh:
			return false, errStale
		case c.unsure:
			return false, nil
		}
		return false, driver.ErrLost
	}
	return e.change(ctx, e.key(name), c)
}

// Ping implements driver.Pinger. It writes and reads, as acquisitions do, so it fails if either right is missing.
func (e *Engine) Ping(ctx context.Context) error {
	ctx, done := e.bind(ctx)
	defer done()
	key := e.notifyKey(e.process + "-ping")
	err := e.store.Set(ctx, key, []byte("ping"), keepEmpty)
	if err == nil {
		_, err = e.store.Get(ctx, key)
	}
	return e.failed(ctx, err)
}

// closeBound is how long Close waits for notifications that are under way, and observations that are shared.
const closeBound = 100 * time.Millisecond

// Close implements driver.Driver. Waiting tickets that the core has not released expire.
func (e *Engine) Close() error {
	e.mu.Lock()
	e.closing = true
	e.mu.Unlock()
	timer := time.AfterFunc(closeBound, func() { e.life.End() })
	defer timer.Stop()
	e.notices.Wait() // a process that ends at once has notified the next waiter, and left what it has observed
	e.life.End()
	e.life.Wait()
	return nil
}

// bind returns a context that ends with ctx and with the engine.
func (e *Engine) bind(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.life, func() { cancel(driver.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// answered notes the outcome of a request: the store's error, or that it has answered.
func (e *Engine) answered(err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	if errors.Is(err, ErrChanged) || errors.Is(err, ErrTooLarge) {
		err = nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.storeErr = err
}

// failed returns the error of a call, joined with the store's last error if the call has ended with ctx.
func (e *Engine) failed(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case e.life.Closed():
		return driver.ErrClosed
	case ctx.Err() == nil || !errors.Is(err, ctx.Err()):
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return errors.Join(context.Cause(ctx), e.storeErr)
}
