package consul

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/kvqueue"
)

// A batcher puts the writes of concurrent callers into one transaction: while two are
// under way, the writes of other callers are collected, and go together into the next.
// A transaction of twenty costs the servers and the network little more than one: with
// 32 callers there are three to five times as many grants a second. Each caller's
// operations carry all their conditions with them. So they are done as they would be
// alone, or not at all, whatever else is in the transaction and whenever it arrives. If
// a transaction is refused, nothing of it was done: the callers to whose parts the server
// objects are told so, and the rest is sent again. If it is not answered, the outcome is
// unknown for all. A caller that is alone sends at once, under its own context.
type batcher struct {
	store *store

	mu      sync.Mutex
	sending int
	waiting []*write // in order
}

const (
	sendsAtOnce = 2
	mostOps     = 64                   // of a transaction
	mostLag     = 5 * time.Millisecond // that a write waits for those under way, which may hang
	sendBound   = 10 * time.Second     // of a transaction that callers share
)

// A write is the operations of one caller, on the queue of one name.
type write struct {
	name  string
	ops   []op
	done  chan struct{} // closed when pairs and err are set
	pairs api.KVPairs
	err   error
}

// commit is store.commit. Two tickets that one transaction creates have the same index,
// so they must not be of one name: the second is sent alone.
func (b *batcher) commit(ctx context.Context, name string, ops ...op) (api.KVPairs, error) {
	b.mu.Lock()
	again := slices.ContainsFunc(b.waiting, func(o *write) bool { return o.name == name })
	if again || b.sending < sendsAtOnce && len(b.waiting) == 0 {
		b.sending++
		b.mu.Unlock()
		defer b.sent()
		return b.store.commit(ctx, ops...)
	}
	w := &write{name: name, ops: ops, done: make(chan struct{})}
	if b.waiting = append(b.waiting, w); len(b.waiting) == 1 {
		time.AfterFunc(mostLag, b.sendLate)
	}
	b.mu.Unlock()
	select {
	case <-w.done:
		return w.pairs, w.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// sendLate sends the writes that wait, however many transactions are under way.
func (b *batcher) sendLate() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) > 0 {
		b.send()
	}
}

// sent notes the end of a transaction, and sends the next one.
func (b *batcher) sent() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.sending--; len(b.waiting) > 0 {
		b.send()
	}
}

// send sends the writes that wait, as many as fit into one transaction. With mu held.
func (b *batcher) send() {
	n, ops := 0, 0
	for n < len(b.waiting) && ops+len(b.waiting[n].ops) <= mostOps {
		ops += len(b.waiting[n].ops)
		n++
	}
	batch := slices.Clone(b.waiting[:n])
	if b.waiting = slices.Delete(b.waiting, 0, n); len(b.waiting) > 0 {
		time.AfterFunc(mostLag, b.sendLate)
	}
	b.sending++
	if !kvqueue.Go(b.store.engine, func(ctx context.Context) { b.run(ctx, batch) }) {
		for _, w := range batch {
			w.err = driver.ErrClosed
			close(w.done)
		}
	}
}

// run sends one transaction for many, and gives each its answer.
func (b *batcher) run(ctx context.Context, batch []*write) {
	defer b.sent()
	ctx, cancel := context.WithTimeout(ctx, sendBound)
	defer cancel()
	for more := true; more; {
		ops := make([]op, 0, mostOps)
		for _, w := range batch {
			ops = append(ops, w.ops...)
		}
		pairs, err := b.store.commit(ctx, ops...)
		batch, more = refuse(batch, err)
		if !more {
			b.answer(ctx, batch, pairs, err)
		}
	}
}

// refuse gives the writes that have made a transaction fail their errors, and returns the
// rest. more says that the rest is to be sent again.
func refuse(batch []*write, err error) (rest []*write, more bool) {
	var all *rollback
	if len(batch) < 2 || !errors.As(err, &all) {
		return batch, false
	}
	first := 0
	for _, w := range batch {
		if own := all.part(first, len(w.ops)); own != nil {
			w.err = own
			close(w.done)
		} else {
			rest = append(rest, w)
		}
		first += len(w.ops)
	}
	return rest, len(rest) > 0 && len(rest) < len(batch)
}

// answer gives each write of a batch its answer.
func (b *batcher) answer(ctx context.Context, batch []*write, pairs api.KVPairs, err error) {
	alone := err != nil && !unknown(err) && !b.store.Temporary(err) && len(batch) > 1
	for _, w := range batch {
		switch {
		case alone: // all together are too large, or the token may not do one of them
			w.pairs, w.err = b.store.commit(ctx, w.ops...)
		case err != nil:
			w.err = err
		default:
			pairs = w.answer(pairs)
		}
		close(w.done)
	}
}

// answer takes the pairs of w off the pairs that a transaction has returned, and returns
// the rest. The pairs are in the order of the operations, without those that the token
// may not read.
func (w *write) answer(pairs api.KVPairs) (rest api.KVPairs) {
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
