package redlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisline"
)

// poll is one question to all nodes.
type poll struct {
	mu      sync.Mutex
	pending int
	over    bool // nobody waits for the answers any more
	done    chan struct{}
	take    func(node int, v any, err error) (enough bool) // with mu held; also for answers that come late
}

// ask puts a question to all nodes at once, or to those for which form has a
// call. It returns when take has enough, when all have answered, or with an
// error when the time is over for a node to answer in, or ctx's. The
// answers that have not come by then are taken as they come.
func (d *Driver) ask(ctx context.Context, p *poll, form func(n *node) *call) error {
	d.listen()
	calls := d.calls(form)
	p.pending = 0
	for _, c := range calls {
		if c != nil {
			p.pending++
		}
	}
	if p.pending == 0 {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for i, c := range calls {
		if c == nil {
			continue
		}
		c.done = func(v any, err error) { p.answer(i, v, err) }
		d.nodes[i].add(c)
	}
	t := time.NewTimer(d.timeout + slack)
	defer t.Stop()
	var err error
	select {
	case <-p.done:
		return nil
	case <-t.C:
	case <-ctx.Done():
		err = redisline.Ended(ctx, d.deaf())
	case <-d.aborting:
		err = driver.ErrClosed
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	return err
}

// slack is how long after a node's time is over its answer may be told.
const slack = 50 * time.Millisecond

func newPoll(take func(node int, v any, err error) bool) *poll {
	return &poll{done: make(chan struct{}), take: take}
}

func (d *Driver) calls(form func(n *node) *call) []*call {
	calls := make([]*call, len(d.nodes))
	for i, n := range d.nodes {
		calls[i] = form(n)
	}
	return calls
}

func (p *poll) answer(node int, v any, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pending--
	enough := p.take(node, v, err)
	if (enough || p.pending == 0) && !p.over {
		p.over = true
		close(p.done)
	}
}

// quorumError says that too few nodes have answered, and why. It does not
// unwrap to several errors: its text is to stay whole.
type quorumError struct {
	answered, nodes, quorum int
	errs                    []error // one for each node that has not answered
	unavailable             bool    // so many do not answer, or refuse everybody, that there is no majority
}

func (e *quorumError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d of %d nodes answered, %d are needed", e.answered, e.nodes, e.quorum)
	for i, err := range e.errs {
		if i == 0 {
			b.WriteString(" (")
		} else {
			b.WriteString("; ")
		}
		b.WriteString(err.Error())
	}
	if len(e.errs) > 0 {
		b.WriteString(")")
	}
	return b.String()
}

// Is makes errors.Is find what went wrong on any node.
func (e *quorumError) Is(target error) bool {
	if target == driver.ErrUnavailable {
		return e.unavailable
	}
	for _, err := range e.errs {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// As makes errors.As find what went wrong on any node.
func (e *quorumError) As(target any) bool {
	for _, err := range e.errs {
		if errors.As(err, target) {
			return true
		}
	}
	return false
}

// unreached makes the error of a question that too few nodes have answered. A
// nil error in errs belongs to a node that has answered; missing ones have not.
func (d *Driver) unreached(errs []error, answered func(node int) bool) error {
	e := &quorumError{nodes: len(d.nodes), quorum: d.quorum}
	denied := 0
	for i, n := range d.nodes {
		switch {
		case answered(i):
			e.answered++
		case errs[i] != nil:
			if errors.Is(errs[i], errClosed) && d.isClosed() {
				return driver.ErrClosed
			}
			if redisline.IsReply(errs[i]) && !errors.Is(redisline.Unavailable(errs[i]), driver.ErrUnavailable) {
				denied++
			}
			e.errs = append(e.errs, n.failure(errs[i]))
		default:
			err := n.listener.Err() // why it is not reached
			if err == nil {
				err = fmt.Errorf("no answer within %v", d.timeout)
			}
			e.errs = append(e.errs, n.failure(err))
		}
	}
	e.unavailable = denied <= len(d.nodes)-d.quorum
	return e
}

// count is a poll whose answers are yes, no, or a failure.
type count struct {
	*poll
	d       *Driver
	yes, no int
	heard   []bool
	errs    []error
}

// newCount reads answers with read. It has enough when a majority has said yes,
// or so many no that none can.
func (d *Driver) newCount(read func(v any) (bool, error)) *count {
	c := &count{d: d, heard: make([]bool, len(d.nodes)), errs: make([]error, len(d.nodes))}
	c.poll = newPoll(func(node int, v any, err error) bool {
		ok := false
		if err == nil {
			ok, err = read(v)
		}
		switch {
		case err != nil:
			c.errs[node] = err
		case ok:
			c.heard[node] = true
			c.yes++
		default:
			c.heard[node] = true
			c.no++
		}
		return c.yes >= d.quorum || c.no > len(d.nodes)-d.quorum
	})
	return c
}

// verdict is nil when the ticket was there, driver.ErrLost when it was on no
// majority, and else the error for too few answers.
func (c *count) verdict() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.yes >= c.d.quorum:
		return nil
	case c.no > len(c.d.nodes)-c.d.quorum:
		return driver.ErrLost
	case c.yes > 0 && c.yes+c.no >= c.d.quorum:
		return nil // it was there, and is on no majority any more
	}
	return c.d.unreached(c.errs, func(i int) bool { return c.heard[i] })
}

// isOne reads an answer that is 1 or 0.
func isOne(script string) func(any) (bool, error) {
	return func(v any) (bool, error) {
		switch v {
		case int64(1):
			return true, nil
		case int64(0):
			return false, nil
		}
		return false, redisline.Unexpected(script, v)
	}
}
