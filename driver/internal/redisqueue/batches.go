package redisqueue

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// How much may be under way at once to one server.
const (
	calm     = 2                    // pipelines that are not late
	most     = 16                   // pipelines
	late     = 5 * time.Millisecond // a pipeline without an answer for so long is late
	maxBatch = 256                  // scripts in one pipeline
	maxCalls = 1 << 16              // calls that wait for an ordered pipe

	shortest = 30 * time.Millisecond // a caller that sends its call itself waits for the answer at most so long
)

// batches holds the calls for one server. A call is sent at once if fewer pipelines
// than calm are under way. Otherwise it waits, and is sent in one pipeline with the
// calls that came meanwhile. A pipeline that is late does not count, so that calls do
// not wait behind a dead connection.
//
// If nothing is under way, the caller sends its call itself: to wake another goroutine
// for it, and be woken by it, takes half as long as the request on a fast network.
// go-redis does not watch contexts while it reads, so the caller gives up after 30 ms
// and begins the call again in a batch; all scripts may run twice. A caller sends in
// this way only to a server that has just answered within 5 ms.
type batches struct {
	pipe   *Pipe
	near   *redis.Client // the server itself, with that bound; nil if calls are sent only in batches
	master *redis.Client // the server itself, in a Cluster
	used   time.Time     // when a call was last for it, in a Cluster; Pipe.mu guards it

	mu      sync.Mutex
	closed  bool
	calls   []*Call // in order
	prompt  int     // senders whose pipeline is not late
	senders int
	direct  int           // callers that send their calls themselves
	lag     chan struct{} // closed when a pipeline is late
	quick   atomic.Bool   // the server has just answered quickly
}

func newBatches(p *Pipe, server redis.UniversalClient) *batches {
	b := &batches{pipe: p, lag: make(chan struct{})}
	c, ok := server.(*redis.Client)
	if !ok || c == nil || c.Options().TLSConfig != nil { // with TLS go-redis does not watch contexts while it dials, either
		return b
	}
	bound := c.Options().ReadTimeout
	if bound <= 0 || bound > shortest {
		bound = shortest
	}
	b.near = c.WithTimeout(bound) // it shares the pool of c
	b.near.Options().MaxRetries = 0
	return b
}

// lagging is the lag of a call that is added while a pipeline is late.
var lagging = func() chan struct{} {
	lag := make(chan struct{})
	close(lag)
	return lag
}()

// errBusy says that too many calls wait for a server: more of them would take too much
// memory.
var errBusy = errors.New("too many requests wait for this server")

// add puts a call in the queue, unless the queue is closed or full.
func (b *batches) add(c *Call) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return ErrClosed
	case b.pipe.ordered != nil && len(b.calls) >= maxCalls:
		return errBusy
	}
	switch {
	case c.lag != nil: // it was forwarded, and its caller reads this
	case b.senders > b.prompt, b.pipe.forwards(b):
		c.lag = lagging
	default:
		c.lag = b.lag
	}
	b.calls = append(b.calls, c)
	b.send()
	return nil
}

// send starts one more pipeline, if calls wait and the bounds allow it. With mu held.
func (b *batches) send() {
	calm, most := calm, most
	if b.pipe.ordered != nil {
		calm, most = 1, 1
	}
	if len(b.calls) > 0 && b.prompt < calm && b.senders < most {
		b.prompt++
		b.senders++
		b.pipe.senders.Go(b.run)
	}
}

// run sends the queued calls, one pipeline after the other, until none is left or a
// pipeline of its own was late.
func (b *batches) run() {
	var batch []*Call
	isLate := false // guarded by mu
	timer := time.AfterFunc(late, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !isLate && b.pipe.ordered == nil {
			isLate = true
			b.prompt--
			b.lags()
			b.send()
		}
	})
	defer timer.Stop()
	for {
		b.mu.Lock()
		if isLate || len(b.calls) == 0 {
			if !isLate {
				isLate = true
				b.prompt--
			}
			b.senders--
			b.send()
			b.mu.Unlock()
			return
		}
		batch = b.take(batch)
		b.mu.Unlock()
		begun := time.Now()
		timer.Reset(late)
		sent, unreached := b.pipe.run(b, batch)
		timer.Stop()
		if b.near != nil && len(batch) == 1 && sent == 1 {
			b.quick.Store(unreached == nil && time.Since(begun) < late)
		} else {
			runtime.Gosched() // callers that were answered may call again, and then share one pipeline
		}
		clear(batch)
	}
}

// lags has the callers of those calls that were sent watch their contexts. With mu held.
func (b *batches) lags() {
	close(b.lag)
	b.lag = make(chan struct{})
}

// again runs calls that were sent before, and have to be sent again, apart from the others.
func (b *batches) again(calls ...*Call) {
	b.pipe.senders.Go(func() {
		defer time.AfterFunc(late, func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.lags()
		}).Stop()
		_, _ = b.pipe.run(b, calls)
	})
}

// take moves calls from the queue to batch. With mu held.
func (b *batches) take(batch []*Call) []*Call {
	n := min(len(b.calls), maxBatch)
	batch = append(batch[:0], b.calls[:n]...)
	rest := copy(b.calls, b.calls[n:])
	clear(b.calls[rest:])
	b.calls = b.calls[:rest]
	return batch
}

// fail ends the calls that were not sent.
func (b *batches) fail(err error) {
	for _, c := range b.takeAll() {
		c.finish(nil, err)
	}
}

// takeAll removes the calls that were not sent from the queue.
func (b *batches) takeAll() []*Call {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.calls
	b.calls = nil
	return calls
}

func (b *batches) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}

// idle reports whether the caller may send its call itself. If so, the caller has to
// call sendNow.
func (b *batches) idle() bool {
	if b.near == nil || !b.quick.Load() {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed || b.senders+b.direct > 0 {
		return false
	}
	b.direct++
	return true
}

// sendNow sends a call itself. After any error but a denial the call has to be begun
// again.
func (b *batches) sendNow(ctx context.Context, c *Call) (any, error) {
	begun := time.Now()
	cmd := command(ctx, []*Call{c}, false)
	err := b.near.Process(ctx, cmd)
	switch {
	case err == nil, c.unknown(err):
	case Refused(err):
		c.unsent()
	case !IsReply(err):
		b.pipe.check(err)
	}
	if err != nil || time.Since(begun) > late {
		b.quick.Store(false)
	}
	b.mu.Lock()
	b.direct--
	b.mu.Unlock()
	return cmd.Val(), err
}
