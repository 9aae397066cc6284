package redlock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver/internal/redisline"
)

// call is one run of a script on one node.
type call struct {
	script *redisline.Script
	keys   []string
	args   []any
	id     string // the ticket that it may put there, or take away; or empty
	done   func(v any, err error)

	cmd *redis.Cmd
}

// node is one of the servers. Its calls are run in the order in which they were
// added, one pipeline at a time: what undoes a request comes after it.
type node struct {
	index    int
	addr     string
	client   *redis.Client // gives up after the timeout and does not send again
	listener *redisline.Listener
	scripts  []*redisline.Script
	ctx      context.Context //nolint:containedctx // of the node's requests: ends with Close

	mu      sync.Mutex
	closed  bool
	running bool
	asleep  bool
	queue   []*call
	wake    chan struct{}
	ended   chan struct{}        // closed when the goroutine has ended
	strays  map[string]time.Time // tickets of which a request may still be on its way
	owed    map[string]struct{}  // what is to be tried again
	loaded  bool                 // the scripts were loaded; only the goroutine looks
}

const (
	maxBatch = 256     // scripts in one pipeline
	maxQueue = 1 << 16 // calls that wait for a node
)

var (
	errClosed = errors.New("connection closed")
	errBusy   = errors.New("too many requests wait for this node")
)

func newNode(index int, client *redis.Client, timeout time.Duration, keys redisline.Keys) *node {
	n := &node{
		index: index, addr: client.Options().Addr,
		client: client.WithTimeout(timeout), // of the same pool
		wake:   make(chan struct{}, 1),
		ended:  make(chan struct{}),
		strays: make(map[string]time.Time),
		owed:   make(map[string]struct{}),
	}
	for _, s := range scripts {
		n.scripts = append(n.scripts, keys.Script(s))
	}
	n.client.Options().MaxRetries = 0 // of the copy that WithTimeout has made
	return n
}

// add puts a call in the queue. Its done is called once, by the node's
// goroutine or, when the node is closed, at once.
func (n *node) add(c *call) {
	n.mu.Lock()
	if n.closed || len(n.queue) >= maxQueue {
		err := errBusy
		if n.closed {
			err = errClosed
		}
		n.mu.Unlock()
		c.done(nil, err)
		return
	}
	n.queue = append(n.queue, c)
	if !n.running {
		n.running = true
		go n.run()
	}
	rouse := n.asleep
	n.asleep = false
	n.mu.Unlock()
	if rouse {
		n.wake <- struct{}{}
	}
}

// run is the node's goroutine.
func (n *node) run() {
	defer close(n.ended)
	var batch []*call
	for {
		n.mu.Lock()
		for len(n.queue) == 0 {
			if n.closed {
				n.mu.Unlock()
				return
			}
			n.asleep = true
			n.mu.Unlock()
			<-n.wake
			n.mu.Lock()
		}
		size := min(len(n.queue), maxBatch)
		batch = append(batch[:0], n.queue[:size]...)
		rest := copy(n.queue, n.queue[size:])
		clear(n.queue[rest:])
		n.queue = n.queue[:rest]
		n.mu.Unlock()
		n.finish(batch, n.send(batch))
		clear(batch)
	}
}

// finish tells the callers. When the node was not reached, those who have
// queued up meanwhile need not wait for the same.
func (n *node) finish(batch []*call, unreached error) {
	if unreached != nil {
		n.mu.Lock()
		late := n.queue
		n.queue = nil
		n.mu.Unlock()
		defer func() {
			for _, c := range late {
				c.done(nil, unreached)
			}
		}()
	}
	for _, c := range batch {
		v, err := c.cmd.Result()
		if err != nil && !redisline.IsReply(err) && c.id != "" && !unsent(err) {
			n.stray(c.id)
		}
		c.done(v, err)
	}
}

// send runs a batch and returns why the node was not reached, if it was not.
func (n *node) send(batch []*call) error {
	if !n.loaded {
		n.loaded = n.load() == nil
	}
	n.exec(batch)
	unknown := batch
	for len(unknown) > 0 && !redis.HasErrorPrefix(unknown[0].cmd.Err(), "NOSCRIPT") {
		unknown = unknown[1:]
	}
	// The node knows all scripts or none, so those that it does not know come
	// after all others, and sending them again keeps the order.
	if len(unknown) > 0 && n.load() == nil {
		n.exec(unknown)
	}
	for _, c := range batch {
		if err := c.cmd.Err(); err != nil && !redisline.IsReply(err) {
			return err
		}
	}
	return nil
}

func (n *node) exec(calls []*call) {
	for _, c := range calls {
		args := make([]any, 0, 3+len(c.keys)+len(c.args))
		args = append(args, "evalsha", c.script.SHA(), len(c.keys))
		for _, k := range c.keys {
			args = append(args, k)
		}
		c.cmd = redis.NewCmd(n.ctx, append(args, c.args...)...)
	}
	if len(calls) == 1 {
		_ = n.client.Process(n.ctx, calls[0].cmd) // the command has its own error
		return
	}
	p := n.client.Pipeline()
	for _, c := range calls {
		_ = p.Process(n.ctx, c.cmd)
	}
	redisline.FailUnanswered(p.Exec(n.ctx))
}

// load makes all scripts known to the node.
func (n *node) load() error {
	p := n.client.Pipeline()
	for _, s := range n.scripts {
		p.ScriptLoad(n.ctx, s.Text())
	}
	_, err := p.Exec(n.ctx)
	return err
}

var scripts = []*redisline.Script{
	redisline.RedlockAcquire, redisline.RedlockYield, redisline.RedlockRelease, redisline.RedlockRenew,
	redisline.RedlockBeat, redisline.RedlockBreak, redisline.RedlockInspect, redisline.Ping, redisline.Protocol,
}

// unsent tells whether a request that failed cannot have reached the node.
func unsent(err error) bool {
	var op *net.OpError
	return errors.As(err, &op) && op.Op == "dial" || errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrClosed) ||
		errors.Is(err, errClosed) || errors.Is(err, errBusy)
}

// isTimeout tells whether a node did not answer in time.
func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout() && !unsent(err)
}

// stray notes that a request which puts a ticket here may still be on its way.
func (n *node) stray(id string) {
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	for old, at := range n.strays {
		if now.Sub(at) > time.Minute { // the core undoes within half of that
			delete(n.strays, old)
		}
	}
	n.strays[id] = now
}

// strayed tells whether that was noted.
func (n *node) strayed(id string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.strays[id]
	return ok
}

func (n *node) settled(id string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.strays, id)
}

// close lets no more calls in. The goroutine ends when it has run those that
// are there.
func (n *node) close() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return
	}
	n.closed = true
	if !n.running {
		close(n.ended)
		return
	}
	if n.asleep {
		n.asleep = false
		n.wake <- struct{}{}
	}
}

// maxOwed is how many requests are tried again on a node. What is beyond that
// expires.
const maxOwed = 10_000

// owe runs f after a while, unless the node is closed by then, or the same is
// owed already.
func (n *node) owe(what string, after time.Duration, f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.owed[what]; ok || n.closed || len(n.owed) >= maxOwed {
		return
	}
	n.owed[what] = struct{}{}
	time.AfterFunc(after, func() {
		n.mu.Lock()
		delete(n.owed, what)
		closed := n.closed
		n.mu.Unlock()
		if !closed {
			f()
		}
	})
}

// failure says what went wrong on a node, by its address.
func (n *node) failure(err error) error {
	return fmt.Errorf("%s: %w", n.addr, err)
}
