package redisline

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// A Call is one run of a script. It is used once.
type Call struct {
	// Durable has the call wait for replicas; Acked tells what came of it.
	Durable bool

	script *Script
	keys   []string
	args   []any
	ctx    context.Context //nolint:containedctx // of whoever asks: it ends before the request does
	cmd    *redis.Cmd
	ackErr error

	// How often it was written to a connection, and gone when its caller has
	// gone: from then on a Ticket that is to be sent once is not sent any more.
	sent atomic.Int64

	done   chan struct{} // closed when answer and err are there
	answer any
	err    error
}

const gone = 1 << 32

// ErrReplicas says that too few replicas have acknowledged a write in time.
var ErrReplicas = errors.New("not enough replicas")

// NewCall makes a call of a script.
func NewCall(s *Script, keys []string, args ...any) *Call {
	return &Call{script: s, keys: keys, args: args}
}

func (c *Call) begin(ctx context.Context) {
	c.ctx = ctx
	c.done = make(chan struct{})
}

// Wait returns the script's answer, or ctx's end.
func (c *Call) Wait() (any, error) {
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

// Sent returns how often the call was written to a connection so far, if it
// has a Ticket among its arguments. go-redis sends a command again after some
// errors.
func (c *Call) Sent() int { return int(c.sent.Load() &^ gone) }

// Unanswered tells whether requests of a call that has failed may still be on
// their way to the server.
func (c *Call) Unanswered(err error) bool {
	if err == nil || c.Sent() == 0 {
		return false
	}
	var timeout interface{ Timeout() bool }
	return c.sent.Load()&gone != 0 || errors.As(err, &timeout) && timeout.Timeout() ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

func (c *Call) finish(answer any, err error) {
	c.answer, c.err = answer, err
	close(c.done)
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
	return c.command(ctx, "evalsha", c.script.sha)
}

func (c *Call) byText(ctx context.Context) *redis.Cmd {
	return c.command(ctx, "eval", c.script.source)
}

// refused tells whether the server did not know the script by its hash: then it
// has done nothing, and the last sending does not count.
func (c *Call) refused(err error) bool {
	if !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return false
	}
	if c.Sent() > 0 {
		c.sent.Add(-1)
	}
	return true
}

func (c *Call) command(ctx context.Context, verb, script string) *redis.Cmd {
	args := make([]any, 0, 3+len(c.keys)+len(c.args))
	args = append(args, verb, script, len(c.keys))
	for _, k := range c.keys {
		args = append(args, k)
	}
	cmd := redis.NewCmd(ctx, append(args, c.args...)...)
	cmd.SetFirstKeyPos(3)
	return cmd
}

// Ticket makes a ticket's ID an argument of the call that counts how often it
// is sent. With once, it is sent empty when its caller has gone: the script
// then does nothing.
func (c *Call) Ticket(id string, once bool) any { return &ticketArg{c, id, once} }

type ticketArg struct {
	call *Call
	id   string
	once bool
}

// MarshalBinary is how go-redis writes the argument.
func (t *ticketArg) MarshalBinary() ([]byte, error) {
	for {
		n := t.call.sent.Load()
		if t.once && n&gone != 0 {
			return nil, nil
		}
		if t.call.sent.CompareAndSwap(n, n+1) {
			return []byte(t.id), nil
		}
	}
}

// String is for the hooks of tracers.
func (t *ticketArg) String() string { return t.id }

// SetArg sets one of the arguments that NewCall was given.
func (c *Call) SetArg(i int, v any) { c.args[i] = v }
