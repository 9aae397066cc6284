package consul

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"
)

const (
	// queryWait is how long a blocking query waits on the server, unless
	// WithQueryWait says otherwise: less than the 60 s after which many proxies close
	// an idle connection. When it ends without news, the queue is read again:
	// what was changed by hand shows then.
	queryWait = 45 * time.Second
	// maxQueryWait is Consul's longest.
	maxQueryWait = 10 * time.Minute
	// waitSlack is what the network may take.
	waitSlack = 5 * time.Second
	// ownWatches is how many queues are watched by a blocking query each. The
	// others share one, so that a process that waits for very many names needs
	// few connections: agents allow 200 for each client address.
	ownWatches = 48
)

// after makes a blocking query, which waits until what is read has changed since
// an index, or for a while; after index 0 it does not wait. The context bounds it.
func (s *store) after(ctx context.Context, index uint64) (*api.QueryOptions, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, s.wait*17/16+waitSlack) // the server adds up to a sixteenth
	q := s.read(ctx)
	if q.WaitIndex = index; index > 0 {
		q.WaitTime = s.wait
	}
	return q, cancel
}

// gone waits until a ticket has gone, or for a while; false: it is not known to
// have gone.
//
// The query is in Consul's default mode, so a deposed leader may answer it. That is
// safe: that a ticket has gone is believed only at an index at which it had
// been created, and from there on it stays gone.
func (s *store) gone(ctx context.Context, t queued) (bool, error) {
	select {
	case s.watches <- struct{}{}:
		defer func() { <-s.watches }()
	default:
		return s.shared.gone(ctx, t)
	}
	q, cancel := s.after(ctx, t.modify)
	defer cancel()
	p, index, err := s.get(q, t.key)
	switch {
	case err != nil:
		return false, err
	case p == nil || p.Session == "":
		return index >= t.number, nil
	}
	return p.CreateIndex > t.number, nil // the key is another ticket's now
}

// changed waits until a queue has changed since an index, or for a while, and
// returns it as it is at the index that it returns, or later.
func (s *store) changed(ctx context.Context, name string, index uint64) ([]entry, uint64, error) {
	q, cancel := s.after(ctx, index)
	defer cancel()
	pairs, now, err := s.list(q, s.keys.queue(name))
	if err != nil {
		return nil, 0, err
	}
	queue, err := parseQueue(pairs)
	return queue, now, err
}

// A sharedWatch is a blocking query for many queues: it reads the keys of all
// tickets. A key is not used again at once, so that one that is there is nearly
// always still the same ticket's.
type sharedWatch struct {
	store *store
	ctx   context.Context // of the driver
	work  *sync.WaitGroup // of the driver

	mu     sync.Mutex
	users  int
	stop   context.CancelFunc
	latest *listing
}

// A listing is what one query has read.
type listing struct {
	keys  map[string]struct{}
	index uint64 // at which they were; 0: never
	err   error
	next  chan struct{} // closed when there is a later one
}

// gone is store.gone.
func (w *sharedWatch) gone(ctx context.Context, t queued) (bool, error) {
	l := w.join()
	defer w.leave()
	end := time.NewTimer(w.store.wait)
	defer end.Stop()
	for first := true; ; first = false {
		if _, there := l.keys[t.key]; !there && l.index >= t.number {
			return true, nil
		}
		if l.err != nil && !first {
			return false, l.err
		}
		select {
		case <-l.next:
			l = w.now()
		case <-end.C:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

func (w *sharedWatch) join() *listing {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users++; w.users == 1 {
		ctx, stop := context.WithCancel(w.ctx)
		w.stop, w.latest = stop, &listing{next: make(chan struct{})}
		w.work.Go(func() { w.follow(ctx) })
	}
	return w.latest
}

func (w *sharedWatch) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users--; w.users == 0 {
		w.stop()
	}
}

func (w *sharedWatch) now() *listing {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.latest
}

// follow asks again and again while somebody waits: not more often than a few
// times a second, however much is going on.
func (w *sharedWatch) follow(ctx context.Context) {
	var index uint64
	var delay time.Duration
	for ctx.Err() == nil {
		l := w.read(ctx, index)
		w.publish(ctx, l)
		pause := 50*time.Millisecond + time.Duration(len(l.keys))*20*time.Microsecond
		if l.err == nil {
			delay = 0
		} else {
			delay = backoff(delay)
			pause = delay
		}
		if l.index < index {
			index = 0 // it went backwards: begin again
		} else {
			index = l.index
		}
		sleep(ctx, pause)
	}
}

func (w *sharedWatch) read(ctx context.Context, index uint64) *listing {
	q, cancel := w.store.after(ctx, index)
	defer cancel()
	keys, meta, err := w.store.client.KV().Keys(w.store.keys.queues(), "", q)
	if err != nil {
		return &listing{err: err}
	}
	l := &listing{index: meta.LastIndex, keys: make(map[string]struct{}, len(keys))}
	for _, key := range keys {
		l.keys[key] = struct{}{}
	}
	return l
}

func (w *sharedWatch) publish(ctx context.Context, l *listing) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx.Err() != nil {
		return // its successor may be at work
	}
	l.next = make(chan struct{})
	close(w.latest.next)
	w.latest = l
}
