package redlock

import (
	"context"

	"github.com/lockerproject/locker/driver/internal/redisline"
)

// agree makes sure, once, that all who use these locks keep them in the same way.
// With write it says how, on each node that nobody has said so to yet. What a
// majority has counts, so that of two programs that differ one at least is told.
func (d *Driver) agree(ctx context.Context, write bool) error {
	return d.protocol.Do(ctx, func(ctx context.Context) (string, error) {
		p := d.newVersions()
		err := d.ask(ctx, p.poll, func(*node) *call {
			c := &call{script: redisline.Protocol, keys: []string{d.protocolKey}}
			if write {
				c.args = []any{d.protocol.Own()}
			}
			return c
		})
		found, ok := p.verdict()
		switch {
		case ok:
			return found, nil
		case err != nil:
			return "", err
		}
		return "", d.unreached(p.errs, func(i int) bool { return p.heard[i] })
	})
}

// mayUse is agree for a request that is about a name.
func (d *Driver) mayUse(ctx context.Context, name string, write bool) error {
	if err := d.keys.CheckName(name); err != nil {
		return err
	}
	return d.agree(ctx, write)
}

// versions is a poll for the protocol version on each node.
type versions struct {
	*poll
	d            *Driver
	found        string // another version than ours, on some node
	own, foreign int    // how many nodes have ours, and another
	answers      int
	heard        []bool
	errs         []error
}

func (d *Driver) newVersions() *versions {
	s := &versions{d: d, heard: make([]bool, len(d.nodes)), errs: make([]error, len(d.nodes))}
	s.poll = newPoll(func(node int, v any, err error) bool {
		var found string
		if err == nil {
			found, err = redisline.ParseProtocol(v)
		}
		if err != nil {
			s.errs[node] = err
			return false
		}
		s.heard[node] = true
		s.answers++
		switch found {
		case "":
		case d.protocol.Own():
			s.own++
		default:
			s.found = found
			s.foreign++
		}
		none := s.answers - s.own - s.foreign
		return s.own >= d.quorum || none >= d.quorum || s.foreign > len(d.nodes)-d.quorum
	})
	return s
}

// verdict is our version if a majority has it, or else another, wherever that is.
func (s *versions) verdict() (found string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.own >= s.d.quorum:
		return s.d.protocol.Own(), true
	case s.foreign > 0:
		return s.found, true
	}
	return "", s.answers >= s.d.quorum
}
