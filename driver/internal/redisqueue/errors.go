package redisqueue

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
)

// refusals are parts of the errors by which a server refuses everybody, for now or
// until an operator acts. For all but the last one, Redis checks before the first
// write of a script, so nothing was changed. Redis 6.2 wraps the error of a command
// in a script, so a part may stand anywhere in the text.
var refusals = []string{
	"LOADING ", "CLUSTERDOWN ", "MASTERDOWN ", "READONLY ", "TRYAGAIN ", "MOVED ", "ASK ", "BUSY ", "MISCONF ", "NOREPLICAS ",
	"OOM command not allowed", "max number of clients reached", "attempted to access a non local key",
}

// outages are parts of go-redis's own errors that say that it reaches no server, or one of
// another kind, whose answers are not Redis's.
var outages = []string{
	"all sentinels specified in configuration are unreachable", "cluster has no nodes",
	"redis: invalid reply: ", "redis: can't parse ",
}

// denials are the first words of the errors by which a server refuses this
// caller, before it runs a script.
var denials = []string{"NOAUTH", "WRONGPASS", "NOPERM"}

// IsReply reports whether an error is the server's answer.
func IsReply(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply)
}

// Unavailable marks the errors that say that the server did not answer, or refuses
// everybody (D14 of package driver). The core recognizes network errors by itself.
func Unavailable(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, redis.ErrPoolExhausted), errors.Is(err, ErrReplicas),
		IsReply(err) && refusesAll(err), !IsReply(err) && hasAny(err.Error(), outages):
		return driver.Unavailable(err)
	}
	return err
}

func refusesAll(err error) bool {
	text, _, _ := strings.Cut(err.Error(), ": the record of ticket ") // an error of common.lua, which ends with a key
	return !forbids(err) && hasAny(text, refusals)
}

// Refused reports whether a server has refused a script without running any of it.
func Refused(err error) bool {
	if !IsReply(err) {
		return false
	}
	if refusesAll(err) {
		// A script with undeclared keys may get this error after its first writes.
		return !strings.Contains(err.Error(), "non local key")
	}
	return denied(err)
}

// denied reports whether a server has refused this caller's script before it ran.
func denied(err error) bool {
	return forbids(err) && !strings.Contains(err.Error(), "script: ") // a command in the middle
}

// forbids reports whether an error forbids something to this caller. It may have the caller's name in it.
func forbids(err error) bool {
	return slices.ContainsFunc(denials, func(d string) bool { return redis.HasErrorPrefix(err, d) })
}

// refusesConnection reports whether a server has refused a new connection. That is no answer to a script: it was not
// sent, or it was sent before on another connection.
func refusesConnection(err error) bool {
	return IsReply(err) && hasAny(err.Error(), []string{"WRONGPASS", "max number of clients reached", "run the 'select' command"})
}

// Moving reports whether a Cluster has refused a script because the hash slot of its
// keys is being moved to another master. The script has to be sent again. go-redis
// follows only a few redirections, and two masters may redirect a client to each
// other until both know which of them has the slot.
func Moving(err error) bool {
	return err != nil && (redis.HasErrorPrefix(err, "TRYAGAIN ") || redis.HasErrorPrefix(err, "MOVED ") || redis.HasErrorPrefix(err, "ASK "))
}

func hasAny(s string, parts []string) bool {
	return slices.ContainsFunc(parts, func(p string) bool { return strings.Contains(s, p) })
}

// Ended is the error of a request whose context has ended: the context's cause,
// joined with the reason why the server was not reached, unless that is nil. Where a
// server has answered that reason, it was to another request: only its text is kept, so
// that it does not count as the answer to this one.
func Ended(ctx context.Context, why error) error {
	cause := context.Cause(ctx)
	if why == nil || errors.Is(why, cause) {
		return cause
	}
	why = Unavailable(why)
	if IsReply(why) {
		text := errors.New(why.Error())
		if driver.IsUnavailable(why) {
			text = driver.Unavailable(text)
		}
		why = text
	}
	return errors.Join(cause, why)
}

// ErrRemoved is the cause of the loss of a ticket that Break has removed.
var ErrRemoved error = removed{}

type removed struct{}

func (removed) Error() string { return "the ticket was removed from the queue" }
func (removed) Unwrap() error { return driver.ErrLost }
