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
	// Durable calls fail with ErrReplicas unless enough replicas have them.
	Durable bool

	script *Script
	keys   []string
	args   []any
	ctx    context.Context //nolint:containedctx // of whoever asks: it ends before the request does
	cmd    *redis.Cmd
	ackErr error

	sent  atomic.Int32 // how often it was written to a connection
	given atomic.Bool  // its caller has gone

	done   chan struct{} // closed when answer and err are there
	answer any
	err    error
}

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
		c.given.Store(true)
		return nil, context.Cause(c.ctx)
	}
}

// Sent returns how often the call was written to a connection so far, if it
// has a Ticket among its arguments. go-redis sends a command again after some
// errors.
func (c *Call) Sent() int { return int(c.sent.Load()) }

// Unanswered tells whether requests of a call that has failed may still be on
// their way to the server.
func (c *Call) Unanswered(err error) bool {
	if err == nil || c.Sent() == 0 {
		return false
	}
	var timeout interface{ Timeout() bool }
	return c.given.Load() || errors.As(err, &timeout) && timeout.Timeout() ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

func (c *Call) finish(answer any, err error) {
	if err == nil && c.Durable {
		err = c.checkAcks()
	}
	c.answer, c.err = answer, err
	close(c.done)
}

func (c *Call) checkAcks() error {
	switch {
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
	c.sent.Store(0) // the server has refused it
	return c.command(ctx, "eval", c.script.source)
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
// is sent. With once, it is sent empty when it is sent again for a
// caller who has gone: the script then does nothing.
func (c *Call) Ticket(id string, once bool) any { return &ticketArg{c, id, once} }

type ticketArg struct {
	call *Call
	id   string
	once bool
}

// MarshalBinary is how go-redis writes the argument.
func (t *ticketArg) MarshalBinary() ([]byte, error) {
	if t.call.sent.Load() > 0 && t.once && t.call.given.Load() {
		return nil, nil
	}
	t.call.sent.Add(1)
	return []byte(t.id), nil
}

// String is for the hooks of tracers.
func (t *ticketArg) String() string { return t.id }

// SetArg sets one of the arguments that NewCall was given.
func (c *Call) SetArg(i int, v any) { c.args[i] = v }
