package redlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
)

// A round is one request to all nodes at once, or to some, and their answers. It ends when
// there are enough answers; later ones are still handled.
type round[T any] struct {
	d       *Driver
	read    func(v any) (T, error)
	sending func(send func()) bool              // calls send, or does not, and reports that; nil: send is called
	enough  func() bool                         // whether the answers so far decide; nil: all are waited for. With mu held
	rest    time.Duration                       // how long the other answers are waited for then
	each    func(node int, answer T, err error) // called with each answer; may be nil. With mu held

	mu      sync.Mutex
	calls   []*redisqueue.Call // nil: the node was not asked
	answers []T
	errs    []error // nil: the node has answered
	pending int
	over    bool // nobody waits for answers any more
	done    chan struct{}
}

func newRound[T any](d *Driver, read func(v any) (T, error)) *round[T] {
	n := len(d.nodes)
	return &round[T]{
		d: d, read: read, calls: make([]*redisqueue.Call, n), answers: make([]T, n), errs: slices.Repeat([]error{errSilent}, n),
		done: make(chan struct{}),
	}
}

// errSilent stands for the answer of a node that has not answered yet.
var errSilent = errors.New("no answer in time")

func readAny(v any) (any, error) { return v, nil }

// slack is how long after a node's timeout its answer may still come.
const slack = 50 * time.Millisecond

// ask sends each node the call that form makes for it, if any. It returns when the answers
// are enough, when all nodes have answered or the time for that is over, or with an error
// when ctx ends.
func (r *round[T]) ask(ctx context.Context, form func(n *node) *redisqueue.Call) error {
	r.d.listen()
	for i, n := range r.d.nodes {
		if r.calls[i] = form(n); r.calls[i] != nil {
			r.pending++
		}
	}
	if r.pending == 0 {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	send := func() {
		for i, c := range r.calls {
			if c != nil {
				r.d.nodes[i].send(c, func(v any, err error) { r.answer(i, v, err) })
			}
		}
	}
	switch {
	case r.sending == nil:
		send()
	case !r.sending(send):
		return nil
	}
	t := time.NewTimer(r.d.timeout + slack)
	defer t.Stop()
	return r.wait(ctx, t.C)
}

// do calls f for each node, in a goroutine of its own, with a context that ends with the round.
func (r *round[T]) do(ctx context.Context, f func(ctx context.Context, n *node) (any, error)) error {
	lasting, cancel := context.WithCancel(ctx)
	defer cancel()
	r.pending = len(r.d.nodes)
	for i, n := range r.d.nodes {
		ok := r.d.life.Go(func() {
			v, err := f(lasting, n)
			r.answer(i, v, err)
		})
		if !ok {
			return driver.ErrClosed
		}
	}
	return r.wait(ctx, nil)
}

func (r *round[T]) wait(ctx context.Context, limit <-chan time.Time) (err error) {
	select {
	case <-r.done:
		return nil
	case <-limit:
	case <-ctx.Done():
		err = redisqueue.Ended(ctx, r.d.subscriptionError())
	case <-r.d.ctx.Done():
		err = driver.ErrClosed
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	return err
}

func (r *round[T]) answer(node int, v any, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending--
	if err == nil {
		r.answers[node], err = r.read(v)
	}
	r.errs[node] = err
	if r.each != nil {
		r.each(node, r.answers[node], err)
	}
	switch {
	case r.over:
	case r.pending == 0, r.enough != nil && r.enough() && r.rest == 0:
		r.end()
	case r.enough != nil && r.enough():
		time.AfterFunc(r.rest, func() {
			r.mu.Lock()
			defer r.mu.Unlock()
			if !r.over {
				r.end()
			}
		})
	}
}

// end ends the round. With mu held.
func (r *round[T]) end() {
	r.over = true
	close(r.done)
}

// count counts the answers for which is holds. With mu held.
func (r *round[T]) count(is func(T) bool) (n int) {
	for i, a := range r.answers {
		if r.errs[i] == nil && is(a) {
			n++
		}
	}
	return n
}

func (r *round[T]) answered() int { return r.count(func(T) bool { return true }) }

// failure is the error of a round that too few nodes have answered. With mu held.
func (r *round[T]) failure() error {
	return r.d.unreached(r.errs)
}

// vote sends all nodes a request that they answer with yes or no. It returns nil if a
// majority has said yes, driver.ErrLost if so many have said no that a majority cannot say
// yes, nil too if a majority has answered and some of it said yes, and otherwise the error
// for too few answers.
func (d *Driver) vote(ctx context.Context, script string, each func(node int, err error), form func(n *node) *redisqueue.Call) error {
	_, err := d.votes(ctx, script, each, form)
	return err
}

// votes is vote, and also returns how many have said yes.
func (d *Driver) votes(ctx context.Context, script string, each func(node int, err error), form func(n *node) *redisqueue.Call) (int, error) {
	r := newRound(d, func(v any) (bool, error) {
		if v != int64(1) && v != int64(0) {
			return false, redisqueue.Unexpected(script, v)
		}
		return v == int64(1), nil
	})
	if each != nil {
		r.each = func(node int, _ bool, err error) { each(node, err) }
	}
	yes := func() int { return r.count(func(yes bool) bool { return yes }) }
	no := func() int { return r.answered() - yes() }
	r.enough = func() bool { return yes() >= d.quorum || no() > d.minority() }
	err := r.ask(ctx, form)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case yes() >= d.quorum:
		return yes(), nil
	case no() > d.minority():
		return yes(), driver.ErrLost
	case yes() > 0 && r.answered() >= d.quorum:
		return yes(), nil // it was there, and is on no majority any more
	case err != nil:
		return yes(), err
	}
	return yes(), r.failure()
}

// quorumError says that too few nodes have answered, and why.
type quorumError struct {
	text string
	errs []error
}

func (e *quorumError) Error() string   { return e.text }
func (e *quorumError) Unwrap() []error { return e.errs }

// unreached makes the error of a request that too few nodes have answered, or whose answers do not make a majority. Nodes that
// have answered have no error in errs.
func (d *Driver) unreached(errs []error) error {
	var failures []error
	refusals := 0
	for i, n := range d.nodes {
		err := errs[i]
		if err == nil {
			continue
		}
		if errors.Is(err, redisqueue.ErrClosed) && d.life.Closed() {
			return driver.ErrClosed
		}
		if denied(err) {
			refusals++
		}
		if errors.Is(err, errSilent) {
			err = cmp.Or(n.listener.Err(), fmt.Errorf("no answer within %v", d.timeout))
		}
		failures = append(failures, fmt.Errorf("%s: %w", n.addr, err))
	}
	texts := make([]string, len(failures))
	for i, err := range failures {
		texts[i] = err.Error()
	}
	e := &quorumError{errs: failures}
	answered, why := len(d.nodes)-len(failures), fmt.Sprintf("%d are needed", d.quorum)
	if answered >= d.quorum {
		why = "and differ"
	}
	e.text = fmt.Sprintf("%d of %d nodes answered, %s (%s)", answered, len(d.nodes), why, strings.Join(texts, "; "))
	if refusals <= d.minority() { // else a majority has refused this caller
		return driver.Unavailable(e)
	}
	return e
}

// denied reports whether a node has refused this caller, and not everybody for a while.
func denied(err error) bool {
	return redisqueue.IsReply(err) && !errors.Is(redisqueue.Unavailable(err), driver.ErrUnavailable)
}

var errUnsubscribed = errors.New("no answer to SUBSCRIBE")

// subscriptionError returns why no majority of the nodes can notify this process, or nil if one can.
func (d *Driver) subscriptionError() error {
	errs := make([]error, len(d.nodes))
	for i, n := range d.nodes {
		if n.listener.Up() {
			continue
		}
		errs[i] = cmp.Or(n.listener.Err(), errUnsubscribed)
	}
	return d.majorityOf(errs)
}

// majorityOf returns nil if a majority of the nodes has no error.
func (d *Driver) majorityOf(errs []error) error {
	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
		}
	}
	if failed <= d.minority() {
		return nil
	}
	return d.unreached(errs)
}

// checkServers returns an error if a node is known to be unfit, of those that a majority
// needs to answer first.
func (d *Driver) checkServers(ctx context.Context) error {
	r := newRound(d, func(v any) (error, error) { e, _ := v.(error); return e, nil })
	r.enough = func() bool { return r.answered() >= d.quorum }
	if err := r.do(ctx, func(ctx context.Context, n *node) (any, error) { return redisqueue.CheckServer(ctx, n.client), nil }); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, err := range r.answers {
		if err != nil {
			return fmt.Errorf("%s: %w", d.nodes[i].addr, err)
		}
	}
	return nil
}

// agree checks, once, that all programs that use these locks have the same protocol
// version, and that the nodes can keep locks.
func (d *Driver) agree(ctx context.Context, write bool) error {
	return d.protocol.Do(ctx, func(ctx context.Context) (string, error) {
		version, err := d.version(ctx, write)
		if err == nil {
			err = d.checkServers(ctx)
		}
		return version, err
	})
}

// version reads the protocol version. With write, it writes the version on each node that
// has none. A majority decides, so that at least one of two programs that differ gets an
// error.
func (d *Driver) version(ctx context.Context, write bool) (string, error) {
	r := newRound(d, redisqueue.ParseProtocol)
	own := func(v string) bool { return v == d.protocol.Own() }
	none := func(v string) bool { return v == "" }
	other := func(v string) bool { return !own(v) && !none(v) }
	r.enough = func() bool {
		return r.count(own) >= d.quorum || r.count(none) >= d.quorum || r.count(other) > d.minority()
	}
	err := r.ask(ctx, func(*node) *redisqueue.Call { return redisqueue.ProtocolCall(d.protocol, d.protocolKey, write) })
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.count(own) >= d.quorum:
		return d.protocol.Own(), nil
	case r.count(other) > 0:
		return r.answers[slices.IndexFunc(r.answers, other)], nil
	case r.answered() >= d.quorum:
		return "", nil
	case err != nil:
		return "", err
	}
	return "", r.failure()
}

// mayUse is agree for a request that has a name, which it checks too.
func (d *Driver) mayUse(ctx context.Context, name string, write bool) error {
	if d.life.Closed() {
		return driver.ErrClosed
	}
	if err := d.keys.CheckName(name); err != nil {
		return err
	}
	return d.agree(ctx, write)
}

// listen starts the subscriptions, in the background. Nodes notify of breaks there, and
// their errors say why a node is not reached.
func (d *Driver) listen() {
	for _, n := range d.nodes {
		n.listener.Start()
	}
}

// await waits until a majority can notify this process of a grant.
func (d *Driver) await(ctx context.Context) error {
	r := newRound(d, readAny)
	r.enough = func() bool { return r.answered() >= d.quorum || len(d.nodes)-r.pending-r.answered() > d.minority() }
	err := r.do(ctx, func(ctx context.Context, n *node) (any, error) { return nil, n.listener.Await(ctx, d.life.Done()) })
	switch {
	case d.life.Closed():
		return driver.ErrClosed
	case err != nil:
		return err
	}
	return d.subscriptionError()
}
