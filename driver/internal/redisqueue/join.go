package redisqueue

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
)

// joinMost is how many calls one run of a script answers at most.
const joinMost = 100

// joined returns the calls in groups. One run of a script answers a group.
func joined(calls []*Call) [][]*Call {
	if len(calls) == 1 {
		return [][]*Call{calls}
	}
	type run struct {
		script *Script
		key    string
	}
	all := make([][]*Call, 0, len(calls))
	at := make(map[run]int)
	for _, c := range calls {
		r := run{c.script, c.key()}
		i, there := at[r]
		switch {
		case c.Join && there && len(all[i]) < joinMost:
			all[i] = append(all[i], c)
		case c.Join:
			at[r] = len(all)
			fallthrough
		default:
			all = append(all, []*Call{c})
		}
	}
	return all
}

// command returns the command for some calls of a script on the same keys, which has their own arguments one after the other.
func command(ctx context.Context, calls []*Call, byText bool) *redis.Cmd {
	first := calls[0]
	first.place = -1
	args, script := first.args, first.script
	if len(calls) > 1 || byText {
		args = slices.Clone(args)
	}
	if len(calls) > 1 {
		script = script.several
		args = slices.Grow(args, (len(calls)-1)*(len(args)-first.own))
		for i, c := range calls {
			c.place = i
			if i > 0 {
				args = append(args, c.args[c.own:]...)
			}
		}
		args[1] = script.hash
	}
	if byText {
		args[0], args[1] = "eval", script.source
	}
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetFirstKeyPos(3)
	for _, c := range calls {
		c.cmd = cmd
	}
	return cmd
}

// result returns the answer to a call, or why there is none.
func (c *Call) result() (any, error) {
	v, err := c.cmd.Result()
	if err != nil || c.place < 0 {
		return v, err
	}
	answers, _ := v.([]any)
	if c.place >= len(answers) {
		return nil, Unexpected(c.script.name, v)
	}
	return answers[c.place], nil
}

// isLeftOut reports whether a run for several has left a call out, with nil as the answer: it has done nothing for it.
func (c *Call) isLeftOut() bool {
	v, err := c.result()
	return c.place >= 0 && v == nil && err == nil
}
