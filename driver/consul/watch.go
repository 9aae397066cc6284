package consul

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/driver/internal/kvqueue"
)

const (
	// queryWait is how long a blocking query waits on the server, unless
	// WithQueryWait says otherwise: less than the 60 s after which many proxies close
	// an idle connection. When it ends without news, the queue is read again, which
	// shows changes by hand.
	queryWait = 45 * time.Second
	// maxQueryWait is the longest that Consul accepts.
	maxQueryWait = 10 * time.Minute
	// ownWatches is how many queues have a blocking query of their own. The others
	// share one, so that a process that waits for very many names needs few
	// connections: agents allow 200 for each client address.
	ownWatches = 48
)

// queryBound returns how long a blocking query may take: the server adds up to a
// sixteenth to the wait, and the network takes time too.
func (o *options) queryBound() time.Duration { return o.queryWait*17/16 + 5*time.Second }

// after makes a blocking query, which waits until the data has changed since an index,
// or for a while; after index 0 it does not wait. It is in Consul's default mode, so a
// deposed leader may answer it.
func (s *store) after(ctx context.Context, index uint64) (*api.QueryOptions, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(ctx, s.opts.queryBound())
	q := s.read(ctx)
	if q.WaitIndex = index; index > 0 {
		q.WaitTime = s.opts.queryWait
	}
	return q, cancel
}

// Watch implements kvqueue.Store.
func (s *store) Watch(ctx context.Context, w kvqueue.Watching, report func(kvqueue.Event)) error {
	select {
	case s.watches <- struct{}{}:
		defer func() { <-s.watches }()
	default:
		return s.shared.watch(ctx, w, report)
	}
	if w.Aim.Key == "" {
		return s.watchQueue(ctx, w, report)
	}
	q, cancel := s.after(ctx, w.Aim.Version)
	defer cancel()
	p, index, err := s.get(q, w.Aim.Key)
	if err == nil && hasGone(w.Aim, p, index) {
		report(gone(w.Aim))
	}
	return err // without a report there was no news for long, or the ticket was moved
}

// hasGone reports whether a ticket has gone, given the pair of its key at an index or
// later. The pair may come from a deposed leader. That a key is missing counts only at an
// index at which the ticket had been created: from there on the ticket stays gone.
func hasGone(t kvqueue.Entry, p *api.KVPair, index uint64) bool {
	if p == nil || p.Session == "" {
		return index >= t.Number
	}
	return p.CreateIndex > t.Number // the key is another ticket's now
}

func gone(t kvqueue.Entry) kvqueue.Event {
	return kvqueue.Event{Gone: []kvqueue.Gone{{Key: t.Key, Before: t.Number + 1}}}
}

// watchQueue watches for all changes of a queue.
func (s *store) watchQueue(ctx context.Context, w kvqueue.Watching, report func(kvqueue.Event)) error {
	for index := w.Complete; ; {
		q, cancel := s.after(ctx, index)
		queue, now, err := s.readQueue(q, w.Name)
		cancel()
		if err != nil || now <= index { // old data, or no news for long
			return err
		}
		report(kvqueue.Event{Queue: snapshot(queue, now)})
		index = now
	}
}

// Losses implements kvqueue.Store. Each session has a key to which other drivers write
// when they have broken a ticket of the session. One blocking query on the key, for all
// locks of the session, also shows the end of the session, since the key ends with it.
func (s *store) Losses(ctx context.Context, session string, report func()) error {
	key := s.keys.notice(session)
	for index := uint64(0); ; {
		q, cancel := s.after(ctx, index)
		p, now, err := s.get(q, key)
		cancel()
		switch {
		case err != nil:
			return err
		case p == nil:
			if err := s.openNotice(ctx, session, key); err != nil {
				return err
			}
			index = 0
			continue
		case p.ModifyIndex > index || now < index:
			report()
		}
		index = p.ModifyIndex
	}
}

// openNotice makes a session's key for losses, unless the key is missing because the
// session has ended.
func (s *store) openNotice(ctx context.Context, session, key string) error {
	q, cancel := s.after(ctx, 0)
	defer cancel()
	_, err := s.commit(q.Context(), lockOp(key, session, []byte("open")))
	var refused *rollback
	if errors.As(err, &refused) && refused.sessionOver() {
		return kvqueue.ErrSessionOver
	}
	return err
}

// A sharedWatch is one blocking query for many queues: it reads all tickets. It pauses
// between two queries, longer if there are more tickets, which limits its work however
// often they change.
type sharedWatch struct {
	store *store

	mu     sync.Mutex
	users  int
	stop   context.CancelFunc
	latest *listing // nil if nobody watches
}

// A listing is what one query has read.
type listing struct {
	pairs map[string]*api.KVPair // by key
	index uint64                 // at which they were read; 0 if not yet
	err   error
	read  chan struct{} // closed when the next listing has been read
	next  *listing      // set before read is closed
}

// watch is Store.Watch. A watch of a whole queue returns at each change of any queue.
func (w *sharedWatch) watch(ctx context.Context, what kvqueue.Watching, report func(kvqueue.Event)) error {
	l := w.join()
	defer w.leave()
	end := time.NewTimer(w.store.opts.queryWait)
	defer end.Stop()
	for {
		switch key := what.Aim.Key; {
		case l.err != nil || key == "" && l.index > what.Complete:
			return l.err
		case key != "" && hasGone(what.Aim, l.pairs[key], l.index):
			report(gone(what.Aim))
			return nil
		}
		select {
		case <-l.read:
			l = l.next
		case <-end.C:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (w *sharedWatch) join() *listing {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.users++
	if w.latest == nil {
		first := &listing{read: make(chan struct{})}
		stopped, stop := context.WithCancel(context.Background())
		w.latest, w.stop = first, stop
		kvqueue.Go(w.store.engine, func(ctx context.Context) {
			ctx, cancel := context.WithCancel(ctx)
			defer context.AfterFunc(stopped, cancel)()
			defer cancel()
			w.follow(ctx, first)
		})
	}
	return w.latest
}

func (w *sharedWatch) leave() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.users--; w.users == 0 {
		w.stop()
		w.latest = nil
	}
}

// follow repeats the query while somebody watches, until an error.
func (w *sharedWatch) follow(ctx context.Context, last *listing) {
	const least, perTicket = 5 * time.Millisecond, 20 * time.Microsecond // several times what it takes to read one
	for {
		l := w.read(ctx, last.index)
		if !w.publish(last, l) {
			return
		}
		last = l
		select {
		case <-time.After(least + time.Duration(len(l.pairs))*perTicket):
		case <-ctx.Done():
		}
	}
}

// read reads all tickets when one of them has changed since an index.
func (w *sharedWatch) read(ctx context.Context, index uint64) *listing {
	q, cancel := w.store.after(ctx, index)
	defer cancel()
	l := &listing{read: make(chan struct{}), pairs: make(map[string]*api.KVPair)}
	pairs, now, err := w.store.list(q, w.store.keys.queues())
	if l.err = err; now < index {
		return l // old data: begin again
	}
	for _, p := range pairs {
		p.Value = nil
		l.pairs[p.Key] = p
	}
	l.index = now
	w.store.note(now) // a queue that is read from now on is complete as of now, too
	return l
}

// publish makes a listing the latest. It reports whether to go on reading.
func (w *sharedWatch) publish(last, latest *listing) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.latest != last {
		return false // nobody watches, or another goroutine follows by now
	}
	last.next = latest
	close(last.read)
	if w.latest = latest; latest.err != nil {
		w.latest = nil
	}
	return latest.err == nil
}
