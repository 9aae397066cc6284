package consul

import (
	"context"
	"time"
)

// ownWatches is how many lines are watched by a blocking query each. Those of
// more names share one for each bucket of names, so that a process that waits
// for very many names needs no more than ownWatches + buckets connections for it.
const ownWatches = 48

// A bucket is a blocking query that many lines share: it asks for the keys of
// all names in a bucket. Driver.mu guards it.
type bucket struct {
	prefix string
	subs   map[*subscriber]struct{}
	keys   map[string]struct{} // as last read
	index  uint64              // at which they were; 0: never
	stop   context.CancelFunc
}

// A subscriber waits until one ticket has gone.
type subscriber struct {
	key    string
	number uint64
	news   chan error // nil: gone
}

// ownWatch reserves a query of its own for a line.
func (d *Driver) ownWatch() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.watching >= ownWatches {
		return false
	}
	d.watching++
	return true
}

func (d *Driver) endOwnWatch() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watching--
}

// waitShared waits until the ticket at s of the named line has gone; false:
// it is not known to have gone when the time is over.
func (d *Driver) waitShared(ctx context.Context, name string, s spot) (gone bool, err error) {
	sub := &subscriber{key: s.key, number: s.number, news: make(chan error, 1)}
	prefix := d.keys.bucket(name)
	d.subscribe(prefix, sub)
	defer d.unsubscribe(prefix, sub)
	t := time.NewTimer(d.opts.queryWait)
	defer t.Stop()
	select {
	case err := <-sub.news:
		return err == nil, err
	case <-t.C:
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

func (d *Driver) subscribe(prefix string, sub *subscriber) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return
	}
	b := d.shared[prefix]
	if b == nil {
		b = &bucket{prefix: prefix, subs: make(map[*subscriber]struct{})}
		d.shared[prefix] = b
		ctx, cancel := context.WithCancel(d.ctx)
		b.stop = cancel
		d.work.Go(func() { d.watchBucket(ctx, b) })
	}
	b.subs[sub] = struct{}{}
	b.tell(sub)
}

func (d *Driver) unsubscribe(prefix string, sub *subscriber) {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := d.shared[prefix]
	if b == nil {
		return
	}
	delete(b.subs, sub)
	if len(b.subs) == 0 {
		delete(d.shared, prefix)
		b.stop()
	}
}

// tell tells a subscriber if its ticket has gone: the key is not there, at an
// index at which it had been created. With Driver.mu held.
func (b *bucket) tell(sub *subscriber) {
	if _, there := b.keys[sub.key]; there || b.index < sub.number {
		return
	}
	select {
	case sub.news <- nil:
	default:
	}
}

func (d *Driver) watchBucket(ctx context.Context, b *bucket) {
	var index uint64
	var delay time.Duration
	for ctx.Err() == nil {
		next, err := d.readBucket(ctx, b, index)
		if err == nil {
			index, delay = next, 0
			continue
		}
		index, delay = 0, backoff(delay)
		sleep(ctx, delay)
	}
}

// readBucket waits for news after index, and tells whom they concern.
func (d *Driver) readBucket(ctx context.Context, b *bucket, index uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, d.queryBound())
	defer cancel()
	q := d.store.read(ctx)
	if q.WaitIndex = index; index > 0 {
		q.WaitTime = d.opts.queryWait
	}
	keys, meta, err := d.store.client.KV().Keys(b.prefix, "", q)
	d.mu.Lock()
	defer d.mu.Unlock()
	if err != nil {
		for sub := range b.subs {
			select {
			case sub.news <- err:
			default:
			}
		}
		return 0, err
	}
	b.index = meta.LastIndex
	b.keys = make(map[string]struct{}, len(keys))
	for _, key := range keys {
		b.keys[key] = struct{}{}
	}
	for sub := range b.subs {
		b.tell(sub)
	}
	if meta.LastIndex < index { // it went backwards: begin again
		return 0, nil
	}
	return meta.LastIndex, nil
}
