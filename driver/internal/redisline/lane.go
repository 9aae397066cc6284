package redisline

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// Where a server answers in tens of microseconds, waking another goroutine for
// a request, and being woken by it, takes half as long as the request. So a
// call that nothing is under way with is sent by its caller, who cannot give up
// then: the shortcut ends after shortest, and the call is begun again behind
// it.
const (
	shortest = 30 * time.Millisecond // go-redis does not watch contexts while it reads
	swift    = 5 * time.Millisecond  // a server is quick
	slow     = 25 * time.Millisecond // and is not any more
)

// near is a client of one server that gives up early. Its pool is c's. With TLS
// there is none: go-redis does not watch contexts while it dials, either.
func near(c *redis.Client) *redis.Client {
	bound := c.Options().ReadTimeout
	if c.Options().TLSConfig != nil {
		return nil
	}
	if bound <= 0 || bound > shortest {
		bound = shortest
	}
	n := c.WithTimeout(bound)
	n.Options().MaxRetries = 0 // of the copy that WithTimeout has made
	return n
}

// lane is the queue to one server.
type lane struct {
	pipe *Pipe
	near *redis.Client // the server itself, for calls that take the shortcut; may be nil

	mu      sync.Mutex
	closed  bool
	queue   []*Call
	workers int // goroutines, idle ones included
	idle    int
	alone   int         // calls on the shortcut
	quick   atomic.Bool // the server answers in no time: the shortcut may be taken
	wake    chan struct{}
	late    *time.Timer   // fires when the queue has not moved for long
	lag     chan struct{} // closed while lagging
	lagging bool          // a pipeline has taken longer than hurry, and none has been quicker since
}

func (l *lane) add(c *Call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	if l.wake == nil {
		l.wake = make(chan struct{}, most)
		l.lag = make(chan struct{})
		l.late = time.AfterFunc(hurry, l.stuck)
		l.late.Stop()
	}
	c.lag = l.lag
	l.queue = append(l.queue, c)
	switch {
	case l.idle > 0:
		l.idle--
		l.wake <- struct{}{}
	case l.workers < calm:
		l.start()
	case len(l.queue) == 1 && l.workers < most:
		l.late.Reset(hurry)
	}
	return true
}

// start adds a worker; with mu held.
func (l *lane) start() {
	l.workers++
	l.pipe.work.Go(l.run)
}

// stuck lets one more pipeline go when those under way take long.
func (l *lane) stuck() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed && len(l.queue) > 0 && l.idle == 0 && l.workers < most {
		l.start()
		l.late.Reset(hurry)
	}
}

func (l *lane) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, c := range l.queue {
		c.finish(nil, ErrClosed)
	}
	l.queue = nil
	for range l.idle {
		l.wake <- struct{}{}
	}
	l.idle = 0
	if l.late != nil {
		l.late.Stop()
	}
}

// run is a worker: it sends what has queued up, until there is nothing for it
// to do. As many as are allowed in calm stay.
func (l *lane) run() {
	var batch []*Call
	watch := time.AfterFunc(hurry, l.lags)
	watch.Stop()
	for prompt := false; ; { // whether the last pipeline has not lagged
		l.mu.Lock()
		if prompt && l.lagging {
			l.lagging, l.lag = false, make(chan struct{})
		}
		for len(l.queue) == 0 {
			if l.closed || l.idle >= calm || l.workers > calm {
				l.workers--
				l.mu.Unlock()
				return
			}
			l.idle++
			l.mu.Unlock()
			<-l.wake
			l.mu.Lock()
		}
		batch = l.take(batch)
		l.mu.Unlock()
		begun := time.Now()
		watch.Reset(hurry)
		l.pipe.send(batch)
		prompt = watch.Stop()
		if len(batch) == 1 {
			l.quick.Store(time.Since(begun) < swift)
		} else {
			runtime.Gosched() // those who were answered may ask again: one pipeline is for all of them
		}
		clear(batch)
	}
}

// lags tells those who wait that calls take long: that they are to look after
// their contexts.
func (l *lane) lags() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.lagging {
		l.lagging = true
		close(l.lag)
	}
}

// take moves calls from the queue to batch; with mu held.
func (l *lane) take(batch []*Call) []*Call {
	n := min(len(l.queue), maxBatch)
	batch = append(batch[:0], l.queue[:n]...)
	rest := copy(l.queue, l.queue[n:])
	clear(l.queue[rest:])
	l.queue = l.queue[:rest]
	if rest == 0 {
		l.late.Stop()
	}
	return batch
}

// shortcut tells whether a call may be sent by its caller, who then calls
// direct.
func (l *lane) shortcut() bool {
	if l.near == nil || !l.quick.Load() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.queue) > 0 || l.workers-l.idle+l.alone > 0 {
		return false
	}
	l.alone++
	return true
}

// direct sends a call from here. With any error but a denial the call has to be
// begun again, which all scripts allow.
func (l *lane) direct(ctx context.Context, c *Call) (any, error) {
	begun := time.Now()
	cmd := c.bySHA(ctx)
	err := l.near.Process(ctx, cmd)
	l.pipe.doubt(err)
	switch {
	case c.refused(err):
	case Refused(err):
		c.unsent()
	case err != nil, time.Since(begun) > slow:
		l.quick.Store(false)
	}
	l.mu.Lock()
	l.alone--
	l.mu.Unlock()
	return cmd.Val(), err
}
