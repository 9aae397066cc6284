package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker/conformance/link"
	"github.com/lockerproject/locker/driver"
)

// verb is the kind of a request.
type verb string

const (
	acquireVerb verb = "acquire"
	releaseVerb verb = "release"
	otherVerb   verb = "another"
)

var errAnswerLost = errors.New("wire: the request was executed and its answer lost")

// wire is a Link between the core and any driver. It can also drop single answers, after
// the store has executed the request. It has only those optional interfaces that its cases
// need.
type wire struct {
	*link.Interceptor

	d driver.Driver

	mu    sync.Mutex
	lose  map[verb]int // how many answers to drop
	calls map[verb]int
	last  driver.Hold // of the latest grant that was delivered
}

var (
	_ driver.BatchRenewer = (*wire)(nil)
	_ driver.Bounder      = (*wire)(nil)
	_ Link                = (*wire)(nil)
)

func newWire(d driver.Driver) *wire {
	return &wire{Interceptor: link.NewInterceptor(), d: d, lose: make(map[verb]int), calls: make(map[verb]int)}
}

// loseNext drops the answers to the next n requests of a verb.
func (w *wire) loseNext(v verb, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose[v] = n
}

// count returns how many requests of the verbs there were, or of all verbs if none is
// named.
func (w *wire) count(verbs ...verb) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for v, calls := range w.calls {
		if len(verbs) == 0 || slices.Contains(verbs, v) {
			n += calls
		}
	}
	return n
}

// lastGrant returns the hold of the latest grant that was delivered.
func (w *wire) lastGrant() driver.Hold {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.last
}

// pass sends a request and returns its answer, unless that is dropped.
func (w *wire) pass(ctx context.Context, v verb, request func() error) error {
	w.mu.Lock()
	w.calls[v]++
	w.mu.Unlock()
	return w.Intercept(ctx, func() error {
		err := request()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.lose[v] > 0 {
			w.lose[v]--
			return errAnswerLost
		}
		return err
	})
}

// ask is pass for a request whose answer is more than an error.
func ask[T any](ctx context.Context, w *wire, v verb, request func() (T, error)) (answer T, err error) {
	err = w.pass(ctx, v, func() error { answer, err = request(); return err })
	return answer, err
}

// Acquire implements driver.Driver.
func (w *wire) Acquire(ctx context.Context, r driver.Request) (driver.Grant, error) {
	g, err := ask(ctx, w, acquireVerb, func() (driver.Grant, error) { return w.d.Acquire(ctx, r) })
	if err != nil {
		return driver.Grant{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.last = r.Hold(g.Token)
	return g, nil
}

// Renew implements driver.Driver.
func (w *wire) Renew(ctx context.Context, h driver.Hold, ttl time.Duration) error {
	return w.pass(ctx, otherVerb, func() error { return w.d.Renew(ctx, h, ttl) })
}

// RenewAll implements driver.BatchRenewer.
func (w *wire) RenewAll(ctx context.Context, rs []driver.Renewal) []error {
	errs := make([]error, len(rs))
	err := w.pass(ctx, otherVerb, func() error {
		if b, ok := w.d.(driver.BatchRenewer); ok {
			copy(errs, b.RenewAll(ctx, rs))
			return nil
		}
		var group sync.WaitGroup
		for i, r := range rs {
			group.Go(func() { errs[i] = w.d.Renew(ctx, r.Hold, r.TTL) })
		}
		group.Wait()
		return nil
	})
	if err != nil {
		for i := range errs {
			errs[i] = err
		}
	}
	return errs
}

// Release implements driver.Driver.
func (w *wire) Release(ctx context.Context, h driver.Hold) error {
	return w.pass(ctx, releaseVerb, func() error { return w.d.Release(ctx, h) })
}

// Inspect implements driver.Driver.
func (w *wire) Inspect(ctx context.Context, name string) ([]driver.Ticket, error) {
	return ask(ctx, w, otherVerb, func() ([]driver.Ticket, error) { return w.d.Inspect(ctx, name) })
}

// Bounds implements driver.Bounder.
func (w *wire) Bounds(ttl time.Duration) driver.Bounds { return driver.BoundsOf(w.d, ttl) }

// Close implements driver.Driver.
func (w *wire) Close() error { return w.d.Close() }

func (w *wire) String() string {
	if s, ok := w.d.(fmt.Stringer); ok {
		return s.String()
	}
	return fmt.Sprintf("%T", w.d)
}
