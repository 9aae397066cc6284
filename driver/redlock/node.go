package redlock

import (
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver/internal/redisqueue"
)

// node is one of the servers. Its calls are run in the order in which they were
// sent, one pipeline at a time: a request runs before the one that undoes it.
type node struct {
	index      int
	addr       string
	client     *redis.Client // gives up after the timeout and does not send again
	pipe       *redisqueue.Pipe
	listener   *redisqueue.Listener
	unanswered redisqueue.Unanswered

	mu   sync.Mutex
	owed map[string]struct{} // what is to be tried again
}

func newNode(index int, client *redis.Client, timeout time.Duration, keys redisqueue.Keys) *node {
	n := &node{
		index: index, addr: client.Options().Addr,
		client: client.WithTimeout(timeout), // it shares the pool of client
		owed:   make(map[string]struct{}),
	}
	n.client.Options().MaxRetries = 0 // in the copy that WithTimeout has made
	var inUse []*redisqueue.Script
	for _, s := range scripts {
		inUse = append(inUse, keys.Script(s))
	}
	n.pipe = redisqueue.NewOrderedPipe(n.client, inUse)
	return n
}

// send begins a call. then is called once, at once if the driver is closed.
func (n *node) send(c *redisqueue.Call, then func(v any, err error)) {
	n.pipe.Send(c, func(v any, err error) {
		n.unanswered.Note(c, err)
		then(v, err)
	})
}

// maxOwed is how many requests wait to be tried again on a node. Beyond that,
// the node's tickets expire. One that renews all leases has room always.
const maxOwed = 10_000

// owe runs f a second later, unless the same is owed already.
func (n *node) owe(what string, f func()) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.owed[what]; ok || len(n.owed) >= maxOwed && what != reassurance {
		return
	}
	n.owed[what] = struct{}{}
	time.AfterFunc(again, func() {
		n.mu.Lock()
		delete(n.owed, what)
		n.mu.Unlock()
		f()
	})
}
