package consul

import (
	"context"
	"fmt"
	"time"

	"github.com/lockerproject/locker/driver"
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
	// readBound is how long an ordinary read may take.
	readBound = 10 * time.Second
	// localWait is how long a ticket of this same process is not watched: its
	// release is known without.
	localWait = time.Second
)

var errGone = fmt.Errorf("%w: the ticket was removed from the queue", driver.ErrLost)

// queryBound is how long a blocking query may take: the server adds up to a
// sixteenth to the wait.
func (d *Driver) queryBound() time.Duration {
	return d.opts.queryWait*17/16 + waitSlack
}

// watchOne waits until the ticket at s has gone, or for a while.
//
// The query is in Consul's default mode, so an old leader may answer it. That is
// safe: that a ticket has gone is believed only at an index at which it had
// been created, and from there on it stays gone.
func (l *line) watchOne(ctx context.Context, s spot, local bool) error {
	if local && !sleep(ctx, localWait) {
		return nil
	}
	gone, err := l.waitGone(ctx, s)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered()
	if !gone {
		l.stale = true // no news for long, a change of the ticket, or the past
		return nil
	}
	waiting := len(l.waiters)
	l.view.remove(s.number)
	l.dispatch()
	l.behind = l.behind || len(l.waiters) == waiting // there are others ahead, or were
	return nil
}

func (l *line) waitGone(ctx context.Context, s spot) (bool, error) {
	if !l.d.ownWatch() {
		return l.d.waitShared(ctx, l.name, s)
	}
	defer l.d.endOwnWatch()
	ctx, cancel := context.WithTimeout(ctx, l.d.queryBound())
	defer cancel()
	q := l.d.store.read(ctx)
	q.WaitIndex, q.WaitTime = s.modify, l.d.opts.queryWait
	kv, meta, err := l.d.store.client.KV().Get(s.key, q)
	if err != nil {
		return false, err
	}
	if kv == nil || kv.Session == "" {
		return meta.LastIndex >= s.number, nil
	}
	return kv.CreateIndex > s.number, nil // the key is another ticket's now
}

// watchAll waits until the line has changed since index, or for a while.
func (l *line) watchAll(ctx context.Context, index uint64) error {
	ctx, cancel := context.WithTimeout(ctx, l.d.queryBound())
	defer cancel()
	q := l.d.store.read(ctx)
	q.WaitIndex, q.WaitTime = index, l.d.opts.queryWait
	pairs, now, err := l.d.store.listWith(l.prefix, q)
	if err != nil {
		return err
	}
	entries, err := parseLine(pairs)
	if err != nil {
		return err
	}
	l.d.mu.Lock()
	entries = l.d.withoutGone(entries)
	l.mu.Lock()
	l.d.mu.Unlock()
	defer l.mu.Unlock()
	l.answered()
	if now <= index { // no news, or the past
		l.stale = true
		return nil
	}
	l.view.replace(entries, now, false)
	for _, w := range l.waiters {
		l.stale = l.stale || !l.view.has(w.number)
	}
	return nil
}
