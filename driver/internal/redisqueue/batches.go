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
	late     = 5 * time.Millisecond // without an answer
	maxBatch = 256                  // scripts in one pipeline
	maxCalls = 1 << 16              // calls that wait for an ordered pipe

	shortest = 30 * time.Millisecond // after which a caller who sends a call does not wait for the answer
)

// batches are the calls for one server. A call is sent at once when fewer pipelines are
// under way than calm, and otherwise together with those that came meanwhile, as one
// pipeline. A pipeline that is late does not count, so that calls do not wait behind a
// connection that is dead.
//
// A call that finds nothing under way is sent by its caller: to wake another goroutine
// for it, and be woken by it, takes half as long as the request on a fast network.
// go-redis does not watch contexts while it reads, so the caller gives up after 30 ms
// and begins the call again as one of a batch, which all scripts allow; and only
// a server that has just answered within 5 ms is asked in this way.
type batches struct {
	pipe   *Pipe
	near   *redis.Client // the server itself, with that bound; nil: calls are sent in batches only
	master *redis.Client // the server itself, in a Cluster

	mu      sync.Mutex
	closed  bool
	calls   []*Call // in order
	prompt  int     // senders whose pipeline is not late
	senders int
	direct  int           // callers who send their call
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
	b.near = c.WithTimeout(bound) // of the same pool
	b.near.Options().MaxRetries = 0
	return b
}

// lagging is the lag of a call that comes while a pipeline is late.
var lagging = func() chan struct{} {
	lag := make(chan struct{})
	close(lag)
	return lag
}()

// errBusy says that more calls wait for a server than memory should be spent on.
var errBusy = errors.New("too many requests wait for this server")

// add puts a call in the queue, unless that is closed or full.
func (b *batches) add(c *Call) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return ErrClosed
	case b.pipe.ordered != nil && len(b.calls) >= maxCalls:
		return errBusy
	}
	c.lag = b.lag
	if b.senders > b.prompt {
		c.lag = lagging
	}
	b.calls = append(b.calls, c)
	b.send()
	return nil
}

// send lets one more pipeline go if there may be one; with mu held.
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

// run sends what has queued up, one pipeline after the other, until nothing is left.
func (b *batches) run() {
	var batch []*Call
	isLate := false // guarded by mu
	timer := time.AfterFunc(late, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !isLate && b.pipe.ordered == nil {
			isLate = true
			b.prompt--
			close(b.lag)
			b.lag = make(chan struct{})
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
		unreached := b.pipe.run(b, batch)
		timer.Stop()
		if len(batch) == 1 && batch[0].cmd != nil { // it was sent
			b.quick.Store(unreached == nil && time.Since(begun) < late)
		} else {
			runtime.Gosched() // those who were answered may ask again: one pipeline is for all of them
		}
		clear(batch)
	}
}

// take moves calls from the queue to batch; with mu held.
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

// takeAll takes the calls that were not sent out of the queue.
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

// idle tells whether a call may be sent by its caller, who then calls sendNow.
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

// sendNow sends a call from here. With any error but a denial the call has to be
// begun again.
func (b *batches) sendNow(ctx context.Context, c *Call) (any, error) {
	begun := time.Now()
	cmd := c.bySHA(ctx)
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
