package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
)

// A Call asks a script. It is used once.
type Call struct {
	// Durable makes the call wait for replicas; Acked reports whether enough of them have
	// acknowledged it.
	Durable bool
	// Join says that one run of a script for several may answer this call, with others on the same keys.
	Join bool

	script *Script
	args   []any // of EVALSHA, verb included
	own    int   // where the script's own arguments begin in args
	ticket ticketArg
	ctx    context.Context //nolint:containedctx // of whoever asks, for Wait alone; may be nil
	cmd    *redis.Cmd
	place  int // of this call among those that cmd is for, if it is for several; else -1
	ackErr error
	space  [few]any // for args

	// sent counts how often the call was written to a connection. Its bit callerLeft is
	// set when the caller has left; from then on the call is not sent, or a Ticket with once is sent empty.
	sent atomic.Int64

	lag    <-chan struct{}             // closed when the server takes long
	then   func(answer any, err error) // gets the answer; if it is nil:
	done   chan struct{}               // closed when answer and err are there
	answer any
	err    error
}

// few is how many arguments a call has, usually: EVALSHA, hash, number of keys,
// two keys and seven of the script's own.
const few = 12

const callerLeft = 1 << 32

// ErrReplicas says that too few replicas have acknowledged a write in time.
var ErrReplicas = errors.New("not enough replicas")

// NewCall makes a call of a script.
func NewCall(s *Script, keys []string, args ...any) *Call {
	c := &Call{script: s, own: 3 + len(keys)}
	c.args = append(c.space[:0], "evalsha", s.hash, len(keys))
	for _, k := range keys {
		c.args = append(c.args, k)
	}
	c.args = append(c.args, args...)
	return c
}

// Call makes a call of a script on some keys of this form.
func (k Keys) Call(s *Script, keys []string, args ...any) *Call {
	return NewCall(k.Script(s), keys, args...)
}

// HeartbeatCall makes the call of a heartbeat for tickets of the process that has a channel.
func (k Keys) HeartbeatCall(s *Script, keys []string, channel string, tickets []string) *Call {
	args := make([]any, 0, 1+len(tickets))
	args = append(args, channel)
	for _, t := range tickets {
		args = append(args, t)
	}
	return k.Call(s, keys, args...)
}

// key is the first of the keys.
func (c *Call) key() string { return c.args[3].(string) }

// Wait returns the script's answer, or the cause of ctx's end. It calls ctx.Done only
// when the server takes long, because Done starts a timer in the core's contexts, which
// costs as much as the call.
func (c *Call) Wait() (any, error) {
	select {
	case <-c.done:
		return c.answer, c.err
	case <-c.lag:
	}
	select {
	case <-c.done:
		return c.answer, c.err
	case <-c.ctx.Done():
	}
	select {
	case <-c.done:
		return c.answer, c.err
	default:
		c.sent.Or(callerLeft)
		return nil, context.Cause(c.ctx)
	}
}

func (c *Call) finish(answer any, err error) {
	if c.then != nil {
		c.then(answer, err)
		return
	}
	c.answer, c.err = answer, err
	close(c.done)
}

// Sent returns how often the call was written to a connection so far, if it
// has a Ticket among its arguments. go-redis sends a command again after some
// errors.
func (c *Call) Sent() int { return int(c.sent.Load() &^ callerLeft) }

// Unanswered reports whether requests of a call that has ended with err may still be on
// their way to the server. The answer is only to the last request. In a Cluster, the others
// may have been answered with redirections, which go-redis does not tell.
func (c *Call) Unanswered(err error) bool {
	return c.Sent() > 1 || err != nil && (!IsReply(err) || refusesConnection(err)) && c.Sent() > 0
}

// Acked returns ErrReplicas if a durable call was answered, but not enough replicas have
// acknowledged what it has written. Only a call that Wait has returned an answer of may be
// asked: before, the connection still writes what this reads.
func (c *Call) Acked() error {
	switch {
	case !c.Durable:
		return nil
	case c.ackErr != nil:
		return fmt.Errorf("%w: %w", ErrReplicas, c.ackErr)
	case c.Sent() > 1:
		// WAIT answers for its own connection, not for an earlier try on another: nobody knows how many have it.
		return driver.Unavailable(fmt.Errorf("replicas: the request was sent %d times", c.Sent()))
	default:
		return nil
	}
}

// unknown reports whether the server did not know the script by its hash. It has then run
// nothing, and the last request does not count.
func (c *Call) unknown(err error) bool {
	if err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return false
	}
	c.unsent()
	return true
}

// unsent takes the last request out of the count, if it was counted: it has run nothing.
func (c *Call) unsent() {
	if n := c.sent.Load(); n > 0 && n&callerLeft == 0 { // else it may have been sent empty, and an earlier request counts
		c.sent.Add(-1)
	}
}

// Ticket returns a ticket's ID as an argument of the call. The argument counts how often
// it is sent. With once, it is sent empty after the caller has left: the script then does
// nothing.
func (c *Call) Ticket(id string, once bool) any {
	c.ticket = ticketArg{call: c, id: id, once: once}
	return &c.ticket
}

type ticketArg struct {
	call  *Call
	id    string
	once  bool
	space [32]byte // for the ID's bytes
}

// MarshalBinary is how go-redis writes the argument.
func (t *ticketArg) MarshalBinary() ([]byte, error) {
	for {
		n := t.call.sent.Load()
		if t.once && n&callerLeft != 0 {
			return nil, nil
		}
		if t.call.sent.CompareAndSwap(n, n+1) {
			return append(t.space[:0], t.id...), nil
		}
	}
}

// String is for the hooks of tracers.
func (t *ticketArg) String() string { return t.id }

// SetArg sets one of the arguments that NewCall was given.
func (c *Call) SetArg(i int, v any) { c.args[c.own+i] = v }
