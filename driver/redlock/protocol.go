package redlock

import (
	"context"

	"github.com/lockerproject/locker/driver/internal/redisline"
)

// agree makes sure, once, that all who use these locks keep them in the same way.
// With write it says how, on each node that nobody has said so to yet. A majority
// has to answer, so that of two programs that differ one at least is told.
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
	d       *Driver
	foreign string // another version than ours, on some node
	own     int    // how many nodes have ours
	answers int
	heard   []bool
	errs    []error
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
			s.foreign = found
		}
		return s.foreign != "" || s.answers >= d.quorum
	})
	return s
}

// verdict is another version, wherever that is, or else what a majority has.
func (s *versions) verdict() (found string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.foreign != "":
		return s.foreign, true
	case s.own >= s.d.quorum:
		return s.d.protocol.Own(), true
	}
	return "", s.answers >= s.d.quorum
}
