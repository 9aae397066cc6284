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
	reload func()               // asks the Cluster anew who serves what; nil where there is none
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
	if c, ok := client.(*redis.Client); ok {
		p.only.near = near(c)
	}
	if c, ok := client.(*redis.ClusterClient); ok {
		p.reload = func() { c.ReloadState(p.ctx) }
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
	l, ok := p.lane(c.key())
	if !ok {
		return nil, ErrClosed
	}
	if !c.Durable && l.shortcut() {
		answer, err := l.direct(ctx, c)
		if err == nil || denied(err) {
			return answer, err
		}
	}
	c.begin(ctx)
	if !l.add(c) {
		return nil, ErrClosed
	}
	return c.Wait()
}

// Start begins a call, for whose answer Wait waits. Its script is not run any
// more when ctx ends before it was sent.
func (p *Pipe) Start(ctx context.Context, c *Call) {
	c.begin(ctx)
	l, ok := p.lane(c.key())
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
		if c, ok := route.(*redis.Client); ok {
			l.near = near(c)
		}
		p.lanes[route] = l
	}
	return l, true
}

// send runs a batch: by hash, and those whose scripts the server does not
// know by their text.
func (p *Pipe) send(batch []*Call) {
	live := batch[:0]
	for _, c := range batch {
		if c.ctx.Err() != nil {
			c.finish(nil, context.Cause(c.ctx))
			continue
		}
		live = append(live, c)
	}
	p.exec(live, (*Call).bySHA)
	var unknown []*Call
	for _, c := range live {
		if c.refused(c.cmd.Err()) {
			unknown = append(unknown, c)
		}
	}
	p.exec(unknown, (*Call).byText)
	for _, c := range live {
		p.doubt(c.cmd.Err())
		c.finish(c.cmd.Result())
	}
}

// doubt has a Cluster's map read anew after an error that is not a server's
// answer: go-redis waits up to ten seconds with that.
func (p *Pipe) doubt(err error) {
	if err == nil || p.reload == nil {
		return
	}
	var answer redis.Error
	if !errors.As(err, &answer) {
		p.reload()
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
	cmds := make([]redis.Cmder, len(calls), len(calls)+1)
	for i, c := range calls {
		cmds[i] = c.cmd
	}
	var acks *redis.IntCmd
	if durable {
		acks = redis.NewIntCmd(p.ctx, "wait", p.Replicas, p.ReplicaTimeout.Milliseconds())
		cmds = append(cmds, acks)
	}
	pipeline := p.client.Pipeline()
	_ = pipeline.BatchProcess(p.ctx, cmds...) // it only collects them
	FailUnanswered(pipeline.Exec(p.ctx))
	if durable {
		for _, c := range calls {
			c.ackErr = acks.Err()
			if n := acks.Val(); c.ackErr == nil && n < int64(p.Replicas) {
				c.ackErr = fmt.Errorf("%d of %d acknowledged within %v", n, p.Replicas, p.ReplicaTimeout)
			}
		}
	}
}

// FailUnanswered gives the error of a pipeline, if any, to those of its commands
// that have neither an answer nor an error of their own: go-redis leaves them
// so when it could not connect.
func FailUnanswered(cmds []redis.Cmder, err error) {
	if err == nil {
		return
	}
	for _, cmd := range cmds {
		script, ok := cmd.(*redis.Cmd)
		if cmd.Err() == nil && (!ok || script.Val() == nil) {
			cmd.SetErr(err)
		}
	}
}
