package memcached

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"time"

	"github.com/lockerproject/locker/driver/internal/casqueue"
)

// itemOverhead is more than what an item needs besides its key and value.
const itemOverhead = 128

// unknown is the number of a write whose CAS was not read, or only after another process had overwritten it. No item has it.
const unknown = math.MaxUint64

var _ interface {
	casqueue.Store
	casqueue.Clock
} = (*client)(nil)

// Get implements casqueue.Store.
func (c *client) Get(ctx context.Context, keys ...string) ([]casqueue.Document, error) {
	var req []byte
	for _, key := range keys {
		req = appendGet(req, key)
	}
	n, replies, err := c.do(ctx, req, len(keys))
	if err != nil {
		return nil, err
	}
	docs := make([]casqueue.Document, len(keys))
	for i, a := range replies {
		if err := a.failed(); err != nil {
			return nil, err
		}
		docs[i] = n.document(a)
	}
	return docs, nil
}

// document returns the document in an answer to a reading.
func (n *conn) document(a reply) (d casqueue.Document) {
	if a.code == "VA" {
		d = casqueue.Document{Value: a.value, Version: casqueue.Version{Era: n.era, Number: a.cas}}
	}
	return d
}

// Put implements casqueue.Store. The server numbers its items anew when it is started again. So a version that was read
// on another connection may belong to another content by now: Put returns ErrChanged, and the document has to be read
// again.
func (c *client) Put(ctx context.Context, key string, value []byte, read casqueue.Version, keep time.Duration) (casqueue.Version, error) {
	return c.put(ctx, key, value, read, keep, 2)
}

// PutBlind implements casqueue.Blind.
func (c *client) PutBlind(ctx context.Context, key string, value []byte, read casqueue.Version, keep time.Duration) (casqueue.Version, error) {
	return c.put(ctx, key, value, read, keep, 1)
}

// put writes an item and, with a second command, reads it back.
func (c *client) put(ctx context.Context, key string, value []byte, read casqueue.Version, keep time.Duration, commands int) (casqueue.Version, error) {
	n, err := c.connect(ctx)
	if err != nil {
		return casqueue.Version{}, err
	}
	if read.Number != 0 && read.Era != n.era {
		return casqueue.Version{}, casqueue.ErrChanged
	}
	if size := len(key) + len(value) + itemOverhead; size > n.settings.maxItem {
		return casqueue.Version{}, fmt.Errorf("%w: %d bytes of at most %d (memcached -I)", casqueue.ErrTooLarge, size, n.settings.maxItem)
	}
	verb, cas := "cas", fmt.Sprint(" ", read.Number)
	if read.Number == 0 {
		verb, cas = "add", ""
		if err := n.room(ctx); err != nil {
			return casqueue.Version{}, err
		}
	}
	req := appendWrite(nil, verb, key, value, keep, cas)
	if commands == 2 {
		req = appendGet(req, key)
	}
	replies, err := n.do(ctx, req, commands)
	if err != nil {
		return casqueue.Version{}, err
	}
	switch put := replies[0]; put.code {
	case "STORED":
		v := casqueue.Version{Era: n.era, Number: unknown}
		if now := replies[commands-1]; bytes.Equal(now.value, value) {
			v.Number = now.cas
		}
		return v, nil
	case "EXISTS", "NOT_FOUND", "NOT_STORED":
		if commands == 1 || replies[1].failed() != nil {
			return casqueue.Version{}, casqueue.ErrChanged
		}
		return casqueue.Version{}, &casqueue.Changed{Now: n.document(replies[1])}
	default:
		return casqueue.Version{}, put.failed()
	}
}

// Set implements casqueue.Store. It takes one request if the item is there already. If neither write is done, another one
// was done between them.
func (c *client) Set(ctx context.Context, key string, value []byte, keep time.Duration) error {
	for _, verb := range []string{"replace", "add"} {
		_, replies, err := c.do(ctx, appendWrite(nil, verb, key, value, keep, ""), 1)
		if err != nil {
			return err
		}
		if replies[0].code != "NOT_STORED" {
			return replies[0].failed()
		}
	}
	return nil
}

// Time implements casqueue.Clock.
func (c *client) Time(ctx context.Context) (casqueue.Time, error) {
	n, err := c.connect(ctx)
	if err != nil {
		return casqueue.Time{}, err
	}
	stats, err := n.stats(ctx)
	if err != nil {
		return casqueue.Time{}, err
	}
	return clockOf(stats)
}

// measureEvery is how often a server is asked how full it is, while less than a quarter is used.
const measureEvery = time.Second

// room returns an error if a server that does not evict has no room for the queue of another name. A server that is full
// refuses everything, also renewals and releases. So half of it is left for those, and for waiters: its memory is divided
// among items of similar sizes, so some of it may be of no use for others.
func (n *conn) room(ctx context.Context) error {
	if n.settings.evicts {
		return nil
	}
	n.mu.Lock()
	used, fresh := n.used, n.used <= 0.25 && time.Since(n.measured) < measureEvery
	n.mu.Unlock()
	if !fresh {
		stats, err := n.stats(ctx)
		if err != nil {
			return err
		}
		used = usedOf(stats)
		n.mu.Lock()
		n.measured, n.used = time.Now(), used
		n.mu.Unlock()
	}
	if used <= 0.5 {
		return nil
	}
	return casqueue.Full(fmt.Sprintf("the server has %.0f %% of the memory that it may use (memcached -m): the rest is for the locks that are held", 100*used))
}

// stats returns the server's statistics.
func (n *conn) stats(ctx context.Context) (map[string]string, error) {
	replies, err := n.do(ctx, []byte("stats\r\n"), 1)
	if err != nil {
		return nil, err
	}
	return replies[0].stats, replies[0].failed()
}

// do sends a request on the present connection.
func (c *client) do(ctx context.Context, req []byte, want int) (*conn, []reply, error) {
	n, err := c.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	replies, err := n.do(ctx, req, want)
	return n, replies, err
}
