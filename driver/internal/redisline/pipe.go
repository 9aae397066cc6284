package redisline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// How many requests may be under way at once.
const (
	calm     = 2                    // pipelines, while the server answers
	most     = 16                   // pipelines, while it does not
	hurry    = 5 * time.Millisecond // without an answer, after which it does not
	maxBatch = 256                  // scripts in one pipeline
)

// ErrClosed says that the pipe has been closed.
var ErrClosed = errors.New("connection closed")

// A Pipe runs scripts on a server. Callers at the same time share round trips:
// a call is sent at once when nothing is under way, and otherwise together with
// those that came meanwhile, as one pipeline. Its methods may be called from
// many goroutines.
type Pipe struct {
	Replicas       int           // how many have to have a durable call; set before the first call
	ReplicaTimeout time.Duration // how long to wait for them

	client redis.UniversalClient
	route  func(key string) any // calls with different routes do not wait for each other; may be nil
	ctx    context.Context      //nolint:containedctx // of the pipe's own requests: ends with Close
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	lanes  map[any]*lane
	only   lane // where there is no route
}

// NewPipe makes a pipe over a client, which stays the caller's.
func NewPipe(client redis.UniversalClient) *Pipe {
	p := &Pipe{client: client, lanes: make(map[any]*lane)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.only.pipe = p
	if c, ok := client.(*redis.ClusterClient); ok {
		p.route = func(key string) any {
			node, err := c.MasterForKey(p.ctx, key)
			if err != nil {
				return nil
			}
			return node
		}
	}
	return p
}

// Close makes calls fail and waits, no longer than bound, until those under way
// have ended: go-redis does not give up a request before its timeout.
func (p *Pipe) Close(bound time.Duration) {
	p.mu.Lock()
	p.closed = true
	lanes := []*lane{&p.only}
	for _, l := range p.lanes {
		lanes = append(lanes, l)
	}
	p.mu.Unlock()
	p.cancel()
	for _, l := range lanes {
		l.close()
	}
	ended := make(chan struct{})
	go func() {
		p.work.Wait()
		close(ended)
	}()
	t := time.NewTimer(bound)
	defer t.Stop()
	select {
	case <-ended:
	case <-t.C:
	}
}

// Do runs one script and waits for its answer or ctx's end.
func (p *Pipe) Do(ctx context.Context, c *Call) (any, error) {
	p.Start(ctx, c)
	return c.Wait()
}

// Start begins a call. Its script is not run any more when ctx ends before it
// was sent.
func (p *Pipe) Start(ctx context.Context, c *Call) {
	c.ctx = ctx
	l, ok := p.lane(c.keys[0])
	if !ok || !l.add(c) {
		c.finish(nil, ErrClosed)
	}
}

func (p *Pipe) lane(key string) (*lane, bool) {
	if p.route == nil {
		return &p.only, true
	}
	route := p.route(key)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, false
	}
	l := p.lanes[route]
	if l == nil {
		l = &lane{pipe: p}
		p.lanes[route] = l
	}
	return l, true
}

// lane is the queue to one server.
type lane struct {
	pipe *Pipe

	mu      sync.Mutex
	closed  bool
	queue   []*Call
	spare   []*Call // the other backing array of queue
	workers int     // goroutines, idle ones included
	idle    int
	wake    chan struct{}
	late    *time.Timer // fires when the queue has not moved for long
}

func (l *lane) add(c *Call) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.queue = append(l.queue, c)
	if l.wake == nil {
		l.wake = make(chan struct{}, most)
		l.late = time.AfterFunc(hurry, l.stuck)
		l.late.Stop()
	}
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
	for {
		l.mu.Lock()
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
		l.pipe.send(batch)
		clear(batch)
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

// send runs a batch: by hash, and those whose scripts the server does not
// know by their text.
func (p *Pipe) send(batch []*Call) {
	live := batch[:0]
	for _, c := range batch {
		if err := c.ctx.Err(); err != nil {
			c.finish(nil, err)
			continue
		}
		live = append(live, c)
	}
	p.exec(live, (*Call).bySHA)
	var unknown []*Call
	for _, c := range live {
		if redis.HasErrorPrefix(c.cmd.Err(), "NOSCRIPT") {
			unknown = append(unknown, c)
		}
	}
	p.exec(unknown, (*Call).byText)
	for _, c := range live {
		c.finish(c.cmd.Result())
	}
}

// exec runs calls in one round trip. Where grants have to reach replicas, it
// waits for these on the same connection.
func (p *Pipe) exec(calls []*Call, form func(*Call, context.Context) *redis.Cmd) {
	if len(calls) == 0 {
		return
	}
	durable := false
	for _, c := range calls {
		c.cmd = form(c, p.ctx)
		durable = durable || c.Durable
	}
	if len(calls) == 1 && !durable {
		_ = p.client.Process(p.ctx, calls[0].cmd) // the command has its own error
		return
	}
	pipeline := p.client.Pipeline()
	for _, c := range calls {
		_ = pipeline.Process(p.ctx, c.cmd)
	}
	var acks *redis.IntCmd
	if durable {
		acks = redis.NewIntCmd(p.ctx, "wait", p.Replicas, p.ReplicaTimeout.Milliseconds())
		_ = pipeline.Process(p.ctx, acks)
	}
	_, _ = pipeline.Exec(p.ctx)
	if durable {
		for _, c := range calls {
			c.ackErr = acks.Err()
			if n := acks.Val(); c.ackErr == nil && n < int64(p.Replicas) {
				c.ackErr = fmt.Errorf("%d of %d acknowledged within %v", n, p.Replicas, p.ReplicaTimeout)
			}
		}
	}
}
