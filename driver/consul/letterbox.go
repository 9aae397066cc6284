package consul

import (
	"context"
	"slices"
	"time"
)

// A letter box is a key of a session, by which others tell its driver that they
// have broken a ticket of it. One blocking query on it, for all locks of the
// session, also tells when the session ends, since the key ends with it.

// readPost watches the letter box of s until the session has ended.
func (d *Driver) readPost(s *session) {
	var delay time.Duration
	var index uint64
	for d.inUse(s) {
		next, err := d.readPostOnce(s, index)
		if err != nil {
			delay = backoff(delay)
			sleep(d.ctx, delay)
			index = 0
			continue
		}
		delay, index = 0, next
	}
}

// readPostOnce waits for news and deals with it. It returns the index to wait
// from next; 0 is now.
func (d *Driver) readPostOnce(s *session, index uint64) (uint64, error) {
	ctx, cancel := context.WithTimeout(d.ctx, d.queryBound())
	defer cancel()
	q := d.store.read(ctx)
	if q.WaitIndex = index; index > 0 {
		q.WaitTime = d.opts.queryWait
	}
	kv, meta, err := d.store.client.KV().Get(d.keys.letterbox(s.id), q)
	if err != nil {
		return 0, err
	}
	if kv == nil {
		return 0, d.openPost(ctx, s)
	}
	if kv.ModifyIndex > index || meta.LastIndex < index {
		return kv.ModifyIndex, d.checkSession(ctx, s)
	}
	return kv.ModifyIndex, nil
}

// openPost makes the letter box, unless it is missing because the session has
// ended.
func (d *Driver) openPost(ctx context.Context, s *session) error {
	alive, err := d.renewSession(ctx, s)
	if err != nil || !alive {
		return err
	}
	return d.store.do(ctx, lockOp(d.keys.letterbox(s.id), s.id, []byte("open")))
}

func (d *Driver) inUse(s *session) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !s.ended && !d.closed
}

// checkSession finds the tickets of s that are gone, and tells.
func (d *Driver) checkSession(ctx context.Context, s *session) error {
	d.mu.Lock()
	var ts []*ticket
	for _, t := range s.tickets {
		if t.number > 0 {
			ts = append(ts, t)
		}
	}
	d.mu.Unlock()
	for chunk := range slices.Chunk(ts, checkMost) {
		keys := make([]string, len(chunk))
		for i, t := range chunk {
			keys[i] = t.key
		}
		missing, err := d.missing(ctx, s.id, keys)
		if err != nil {
			return err
		}
		for _, i := range missing {
			if at, moving := d.sessionOf(chunk[i]); at == s && !moving { // else the next renewal asks
				d.lose(chunk[i], errGone)
			}
		}
	}
	return nil
}
