package consul

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/driver"
)

const (
	// sendsAtOnce is how many requests for writes are under way before further
	// ones wait for each other's company.
	sendsAtOnce = 2
	// sendLag is the longest that a write waits for company.
	sendLag = 5 * time.Millisecond
	// sendBound is how long one request that callers share may take.
	sendBound = 10 * time.Second
	// mostOps is how many operations Consul takes in a transaction.
	mostOps = 64
)

// A combiner puts the writes of concurrent callers into one transaction: a
// transaction of twenty costs the servers and the network little more than one,
// and twenty callers need no twenty connections. A caller that is alone sends
// at once, under its own context.
//
// That is safe because each caller's operations carry all their conditions
// with them: whatever company they are in, and whenever the request arrives,
// they are done as they would be alone or not at all. A transaction that is
// refused was not done for anybody: each is then sent alone, and gets an answer
// of its own. One that is not answered leaves all of its callers in the doubt
// that each would be in alone (Driver.notJoined), and any of them that is barred
// keeps a late one from being done for all. A caller who leaves while a shared
// request is under way does not end it, and is in that doubt, too.
type combiner struct {
	store  *store
	ctx    context.Context // of requests that are shared
	cancel context.CancelFunc
	work   *sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	sending int
	moved   time.Time // the last time that a request ended, or was sent because none did
	queue   []*write  // the longest waiting first, one for each line
	lines   map[string]struct{}
	timer   *time.Timer
}

// A write is the operations of one caller.
type write struct {
	ops   []op
	line  string // of the keys that it changes
	since time.Time
	done  chan struct{} // closed when pairs and err are there
	pairs []pair
	err   error
	left  bool // its caller has left, and it was not sent
}

func newCombiner(s *store, work *sync.WaitGroup) *combiner {
	c := &combiner{store: s, work: work, lines: make(map[string]struct{})}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// commit does the operations, which are about the one line, as one.
func (c *combiner) commit(ctx context.Context, line string, ops ...op) ([]pair, error) {
	w := c.enter(line, ops)
	if w == nil {
		defer c.sent()
		return c.store.commit(ctx, ops...)
	}
	return c.wait(ctx, w)
}

// do is commit where only counts that it was done.
func (c *combiner) do(ctx context.Context, line string, ops ...op) error {
	w := c.enter(line, ops)
	if w == nil {
		defer c.sent()
		return c.store.do(ctx, ops...)
	}
	_, err := c.wait(ctx, w)
	return err
}

// enter queues a write; nil: the caller is to send it at once. That is so for the
// second of a line, too: two tickets that one transaction creates have the same
// index, so they must not be of one line. And it keeps clear what is whose answer.
func (c *combiner) enter(line string, ops []op) *write {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, queued := c.lines[line]
	if c.closed || queued || c.sending < sendsAtOnce && len(c.queue) == 0 {
		c.sending++
		return nil
	}
	w := &write{ops: ops, line: line, since: time.Now(), done: make(chan struct{})}
	c.queue = append(c.queue, w)
	c.lines[line] = struct{}{}
	if len(c.queue) == 1 {
		c.plan(sendLag)
	}
	return w
}

// wait waits for the answer to a write.
func (c *combiner) wait(ctx context.Context, w *write) ([]pair, error) {
	select {
	case <-w.done:
		return w.pairs, w.err
	case <-ctx.Done():
		c.mu.Lock()
		defer c.mu.Unlock()
		w.left = true
		return nil, ctx.Err()
	}
}

// sent makes room for the next request.
func (c *combiner) sent() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sending--
	if len(c.queue) > 0 {
		c.moved = time.Now()
		c.next()
	}
}

// plan has the queue looked after in a while. With mu held.
func (c *combiner) plan(in time.Duration) {
	if c.timer == nil {
		c.timer = time.AfterFunc(in, c.overdue)
		return
	}
	c.timer.Reset(in)
}

// overdue sends what has waited for long, however many requests are under way:
// the servers may be far away, or the connections dead.
func (c *combiner) overdue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) == 0 {
		return
	}
	since := c.queue[0].since
	if c.moved.After(since) {
		since = c.moved
	}
	left := sendLag - time.Since(since)
	if left <= 0 {
		left, c.moved = sendLag, time.Now()
		c.next()
	}
	if len(c.queue) > 0 {
		c.plan(left)
	}
}

// next sends the next of the queue. With mu held.
func (c *combiner) next() {
	batch := c.take()
	if len(batch) == 0 {
		return
	}
	c.sending++
	c.work.Go(func() {
		c.run(batch)
		c.sent()
	})
}

// take takes from the queue what goes into one transaction. With mu held.
func (c *combiner) take() (batch []*write) {
	var ops, n int
	for _, w := range c.queue {
		if ops += len(w.ops); ops > mostOps {
			break
		}
		n++
		delete(c.lines, w.line)
		if w.left {
			ops -= len(w.ops)
			continue
		}
		batch = append(batch, w)
	}
	c.queue = slices.Delete(c.queue, 0, n)
	return batch
}

// run sends a transaction for many, and gives each its answer.
func (c *combiner) run(batch []*write) {
	ctx, cancel := context.WithTimeout(c.ctx, sendBound)
	defer cancel()
	ops := make([]op, 0, mostOps)
	for _, w := range batch {
		ops = append(ops, w.ops...)
	}
	pairs, err := c.store.commit(ctx, ops...)
	if err != nil && !unknown(err) && !passing(err) && len(batch) > 1 {
		for _, w := range batch { // one of them was refused, or all together are too much
			w.pairs, w.err = c.store.commit(ctx, w.ops...)
			close(w.done)
		}
		return
	}
	for _, w := range batch {
		if w.err = err; err == nil {
			pairs = w.answer(pairs)
		}
		close(w.done)
	}
}

// answer takes what belongs to w off the pairs that a transaction returned. They
// are in the order of its operations. What the token may not read is missing.
func (w *write) answer(pairs []pair) (rest []pair) {
	n := 0
	for _, o := range w.ops {
		switch o.KV.Verb {
		case api.KVCheckNotExists, api.KVDelete: // return nothing
		case api.KVGetTree:
			for n < len(pairs) && strings.HasPrefix(pairs[n].Key, o.KV.Key) {
				n++
			}
		default:
			if n < len(pairs) && pairs[n].Key == o.KV.Key {
				n++
			}
		}
	}
	w.pairs = pairs[:n:n]
	return pairs[n:]
}

// close ends what is shared. Who comes later sends for itself.
func (c *combiner) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.cancel()
	if c.timer != nil {
		c.timer.Stop()
	}
	for _, w := range c.queue {
		w.err = driver.ErrClosed
		close(w.done)
	}
	c.queue = nil
	clear(c.lines)
}
