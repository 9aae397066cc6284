package consul

import (
	"context"
	"slices"
	"time"
)

// Each session has a key to which others write when they have broken a ticket of
// it. One blocking query on it, for all locks of the session, also tells when the
// session ends, since the key ends with it.

// watchLosses watches the key of s until the session has ended.
func (d *Driver) watchLosses(s *session) {
	var delay time.Duration
	var index uint64
	for d.inUse(s) {
		next, err := d.awaitNotice(s, index)
		if err != nil {
			delay = backoff(delay)
			sleep(d.ctx, delay)
			index = 0
			continue
		}
		delay, index = 0, next
	}
}

// awaitNotice waits for news and deals with it. It returns the index to wait
// from next; 0 is now. It makes the key, unless that is missing because the session
// has ended.
func (d *Driver) awaitNotice(s *session, index uint64) (uint64, error) {
	q, cancel := d.store.after(d.ctx, index)
	defer cancel()
	key := d.store.keys.notice(s.id)
	p, now, err := d.store.get(q, key)
	switch {
	case err != nil:
		return 0, err
	case p == nil:
		alive, err := d.renewSession(q.Context(), s)
		if err == nil && alive {
			_, err = d.store.commit(q.Context(), lockOp(key, s.id, []byte("open")))
		}
		return 0, err
	case p.ModifyIndex > index || now < index:
		err = d.checkSession(q.Context(), s)
	}
	return p.ModifyIndex, err
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
		missing, err := d.store.missing(ctx, s.id, keys)
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
