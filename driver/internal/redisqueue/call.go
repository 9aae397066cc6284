package redisqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// A Call is one run of a script. It is used once.
type Call struct {
	// Durable has the call wait for replicas; Acked tells what came of it.
	Durable bool
	// Redirected says that the server is a Cluster: go-redis sends a call again, too, that one of its servers has
	// refused, and redirected to another.
	Redirected bool

	script *Script
	args   []any // of EVALSHA, verb included
	own    int   // where in args the script's own begin
	ticket ticketArg
	ctx    context.Context //nolint:containedctx // of whoever asks: when it has ended, what was not sent is not sent; may be nil
	cmd    *redis.Cmd
	ackErr error
	space  [few]any // for args

	// How often it was written to a connection, and gone when its caller has
	// gone: from then on a Ticket that is to be sent once is not sent any more.
	sent atomic.Int64
	lost bool // a sending was not answered

	lag    <-chan struct{}             // closed when the server takes long
	then   func(answer any, err error) // or, if nil:
	done   chan struct{}               // closed when answer and err are there
	answer any
	err    error
}

// few is how many arguments a call has, usually: EVALSHA, hash, number of keys,
// two keys and seven of the script's own.
const few = 12

const gone = 1 << 32

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

// key is the first of the keys.
func (c *Call) key() string { return c.args[3].(string) }

// Wait returns the script's answer, or ctx's end. It asks for ctx's Done only when the
// server takes long: the timer that this starts costs as much as the call.
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
		c.sent.Or(gone)
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
func (c *Call) Sent() int { return int(c.sent.Load() &^ gone) }

// Unanswered tells whether requests of a call, which has ended with err, may still be on
// their way to the server: the answer is to the last one.
func (c *Call) Unanswered(err error) bool {
	return c.lost || c.Sent() > 1 && !c.Redirected || err != nil && !IsReply(err) && c.Sent() > 0
}

// Acked returns ErrReplicas unless enough replicas have what a durable call, now
// answered, has written.
func (c *Call) Acked() error {
	switch {
	case !c.Durable:
		return nil
	case c.ackErr != nil:
		return fmt.Errorf("%w: %w", ErrReplicas, c.ackErr)
	case c.Sent() > 1:
		// WAIT answers for its own connection, not for an earlier try on another.
		return fmt.Errorf("%w: the request was sent %d times", ErrReplicas, c.Sent())
	default:
		return nil
	}
}

func (c *Call) bySHA(ctx context.Context) *redis.Cmd {
	cmd := redis.NewCmd(ctx, c.args...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

func (c *Call) byText(ctx context.Context) *redis.Cmd {
	args := slices.Clone(c.args)
	args[0], args[1] = "eval", c.script.source
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

// unknown tells whether the server did not know the script by its hash: then it
// has done nothing, and the last sending does not count.
func (c *Call) unknown(err error) bool {
	if err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return false
	}
	c.unsent()
	return true
}

// unsent does not count the last sending, which has run nothing; it may not have
// come to it.
func (c *Call) unsent() {
	if c.Sent() > 0 {
		c.sent.Add(-1)
	}
}

// Ticket makes a ticket's ID an argument of the call that counts how often it
// is sent. With once, it is sent empty when its caller has gone: the script
// then does nothing.
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
		if t.once && n&gone != 0 {
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
