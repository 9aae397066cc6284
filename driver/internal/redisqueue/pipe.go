package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver/internal/life"
)

// unused is how long a master of a Cluster is remembered that no call was for.
const unused = 10 * time.Minute

// retries is how often a pipeline to a master of a Cluster is sent again over another
// connection.
const retries = 3

// ErrClosed says that the pipe has been closed.
var ErrClosed = errors.New("connection closed")

// A Pipe runs scripts on a server, or on the servers of a Cluster. Callers at the same
// time share round trips; see batches. Its methods may be called from many goroutines.
type Pipe struct {
	Replicas       int           // how many have to acknowledge a durable call; set before the first call
	ReplicaTimeout time.Duration // how long to wait for them

	client  redis.UniversalClient
	cluster *redis.ClusterClient // client, if it is that
	ordered []*Script            // the scripts in use, if calls are run in the order of Send; else nil
	ctx     context.Context      //nolint:containedctx // of the pipe's own requests: ends with Close
	cancel  context.CancelFunc
	senders sync.WaitGroup
	only    *batches    // where there is one server; in a Cluster, for calls whose server is not known yet
	mapped  atomic.Bool // the Cluster's map has been read

	mu      sync.Mutex
	closed  bool
	servers map[*redis.Client]*batches // in a Cluster
}

// NewPipe makes a pipe over a client, which stays the caller's. Several pipelines may be
// under way at once.
func NewPipe(client redis.UniversalClient) *Pipe {
	p := &Pipe{client: client, servers: make(map[*redis.Client]*batches)}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.cluster, _ = client.(*redis.ClusterClient)
	p.only = newBatches(p, client)
	return p
}

// NewOrderedPipe makes a pipe that sends one pipeline at a time and runs calls in the order
// in which they were added: a request runs before the one that undoes it. Its client must
// not retry. scripts are all scripts in use.
func NewOrderedPipe(client *redis.Client, scripts []*Script) *Pipe {
	p := NewPipe(client)
	p.ordered = scripts
	return p
}

// Do runs one script and waits for its answer or ctx's end.
func (p *Pipe) Do(ctx context.Context, c *Call) (any, error) {
	b := p.batches(c)
	if !c.Durable && b.idle() {
		answer, err := b.sendNow(ctx, c)
		if err == nil || denied(err) {
			return answer, err
		}
	}
	p.start(ctx, c, b)
	return c.Wait()
}

// Start begins a call; Wait returns its answer. A call is not sent if ctx has ended before, or if Wait
// has returned because ctx has ended since.
func (p *Pipe) Start(ctx context.Context, c *Call) { p.start(ctx, c, p.batches(c)) }

func (p *Pipe) start(ctx context.Context, c *Call, b *batches) {
	c.ctx, c.lag = ctx, nil
	c.done = make(chan struct{})
	if ctx.Err() != nil {
		c.finish(nil, context.Cause(ctx))
	} else if err := b.add(c); err != nil {
		c.finish(nil, err)
	}
}

// Send begins a call. then is called once with its answer, from another goroutine, or
// at once if the pipe is closed or full.
func (p *Pipe) Send(c *Call, then func(answer any, err error)) {
	c.then = then
	if err := p.batches(c).add(c); err != nil {
		then(nil, err)
	}
}

// batches returns where a call is to be added. It does not wait.
func (p *Pipe) batches(c *Call) *batches {
	if p.cluster == nil || !p.mapped.Load() {
		return p.only
	}
	master, err := p.cluster.MasterForKey(p.ctx, c.key())
	if err != nil {
		return p.only
	}
	return p.of(master)
}

// of returns the batches of a master of the Cluster.
func (p *Pipe) of(master *redis.Client) *batches {
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	b := p.servers[master]
	if b == nil {
		for server, other := range p.servers { // perhaps it has left the Cluster
			if now.Sub(other.used) > unused {
				delete(p.servers, server)
			}
		}
		b = newBatches(p, master)
		// A pipeline of several calls goes to the master directly. While a hash slot is
		// being moved, a pipeline of the Cluster would run all calls again, and some at
		// two masters at once.
		b.master = master.WithTimeout(master.Options().ReadTimeout)
		b.master.Options().MaxRetries = retries
		b.closed = p.closed
		p.servers[master] = b
	}
	b.used = now
	return b
}

// forwards reports whether b has calls whose server is not known yet.
func (p *Pipe) forwards(b *batches) bool { return p.cluster != nil && b == p.only }

// forward adds calls to the batches of their masters. The first one waits until the
// Cluster's map has been read.
func (p *Pipe) forward(calls []*Call) (unreached error) {
	for _, c := range calls {
		master := (*redis.Client)(nil)
		if unreached == nil {
			master, unreached = p.cluster.MasterForKey(p.ctx, c.key())
		}
		err := unreached
		switch {
		case p.ctx.Err() != nil:
			err = ErrClosed
		case err == nil:
			p.mapped.Store(true)
			err = p.of(master).add(c)
		}
		if err != nil {
			c.finish(nil, err)
		}
	}
	return unreached
}

// Close accepts no more calls and waits, no longer than bound, for those that it has. Calls
// that were not sent by then fail. A request under way ends by itself: go-redis does not
// give it up before its timeout.
func (p *Pipe) Close(bound time.Duration) {
	p.mu.Lock()
	p.closed = true
	servers := []*batches{p.only}
	for _, b := range p.servers {
		servers = append(servers, b)
	}
	p.mu.Unlock()
	for _, b := range servers {
		b.close()
	}
	life.Ending(p.senders.Wait)(bound)
	p.cancel()
	for _, b := range servers {
		b.fail(ErrClosed)
	}
}

// run sends a batch by hash, and then again the calls whose scripts the server does not
// know. Calls that a run for several has left out begin again, alone. It returns how many
// it has sent, and why the server was not reached, if it was not. The calls are no longer
// its own when it returns: their callers may begin them again.
func (p *Pipe) run(b *batches, batch []*Call) (sent int, unreached error) {
	live := batch[:0]
	for _, c := range batch {
		if c.sent.Load()&callerLeft == 0 { // its context is not asked: that may be a caller's, and block
			live = append(live, c)
		}
	}
	if p.forwards(b) {
		return 0, p.forward(live)
	}
	sent = len(live)
	via := p.client
	if b.master != nil && len(live) > 1 {
		via = b.master
	}
	p.exec(via, live, false)
	var unknown, removed []*Call
	for _, c := range live {
		err := c.cmd.Err()
		followed := len(unknown) > 0 && p.ordered != nil && (err == nil || IsReply(err)) // it has run too early
		if c.unknown(err) || followed {
			unknown = append(unknown, c)
			if c.cmd.Val() == int64(1) {
				removed = append(removed, c)
			}
		}
	}
	loaded := len(unknown) > 0 && p.ordered != nil && p.load() == nil
	p.exec(via, unknown, !loaded)
	for _, c := range live {
		if err := c.cmd.Err(); err != nil && !IsReply(err) {
			unreached = err
		}
	}
	var queued []*Call
	if unreached != nil && p.ordered != nil { // calls that were queued meanwhile need not wait for the same
		queued = b.takeAll() // taken now, without the calls that follow this answer
	}
	var alone []*Call
	for _, c := range live {
		answer, err := c.result()
		switch {
		case via != p.client && Moving(err):
			c.unsent()
			b.again(c) // the client follows its hash slot
			continue
		case c.isLeftOut():
			c.unsent()
			c.Join = false
			alone = append(alone, c)
			continue
		}
		if answer == int64(0) && slices.Contains(removed, c) {
			answer = int64(1) // what it removed when it ran too early was not there any more
		}
		c.finish(answer, err)
	}
	for _, c := range queued {
		c.finish(nil, unreached)
	}
	if len(alone) > 0 {
		b.again(alone...)
	}
	p.check(unreached)
	return sent, unreached
}

// check makes the client of a Cluster read its map anew if a server was not reached: by
// itself, go-redis waits up to ten seconds before that.
func (p *Pipe) check(unreached error) {
	if unreached != nil && p.cluster != nil {
		p.cluster.ReloadState(p.ctx)
	}
}

// load makes all scripts known to the server.
func (p *Pipe) load() error {
	pipeline := p.client.Pipeline()
	for _, s := range p.ordered {
		pipeline.ScriptLoad(p.ctx, s.source)
	}
	_, err := pipeline.Exec(p.ctx)
	return err
}

// exec runs calls in one round trip, by hash or by text. If one of them is durable, it waits for replicas on the
// same connection.
func (p *Pipe) exec(via redis.UniversalClient, calls []*Call, byText bool) {
	cmds := make([]redis.Cmder, 0, len(calls)+1)
	for _, together := range joined(calls) {
		cmds = append(cmds, command(p.ctx, together, byText))
	}
	durable := slices.ContainsFunc(calls, func(c *Call) bool { return c.Durable })
	switch {
	case len(cmds) == 0:
		return
	case len(cmds) == 1 && !durable:
		_ = via.Process(p.ctx, cmds[0]) // the command has its own error
		return
	}
	var acks *redis.IntCmd
	if durable {
		acks = redis.NewIntCmd(p.ctx, "wait", p.Replicas, p.ReplicaTimeout.Milliseconds())
		cmds = append(cmds, acks)
	}
	pipeline := via.Pipeline()
	_ = pipeline.BatchProcess(p.ctx, cmds...) // it only collects them
	failUnanswered(pipeline.Exec(p.ctx))
	if durable {
		for _, c := range calls {
			c.ackErr = acks.Err()
			if n := acks.Val(); c.ackErr == nil && n < int64(p.Replicas) {
				c.ackErr = fmt.Errorf("%d of %d acknowledged within %v", n, p.Replicas, p.ReplicaTimeout)
			}
		}
	}
}

// failUnanswered sets the error of a pipeline, if any, in those of its scripts that have
// neither an answer nor an error: go-redis leaves them so when it could not connect. It may be
// the answer to one script, and then says nothing of the replicas.
func failUnanswered(cmds []redis.Cmder, err error) {
	if err == nil {
		return
	}
	for _, cmd := range cmds {
		if script, ok := cmd.(*redis.Cmd); ok && script.Err() == nil && script.Val() == nil {
			script.SetErr(err)
		}
	}
}
