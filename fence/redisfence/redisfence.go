// Package redisfence fences data in Redis: it refuses a holder that has lost its
// lock, as package [github.com/lockerproject/locker/fence] explains.
//
//	err := redisfence.Update(ctx, client, lock, "{stock:42}:items", func(items string, ok bool) (string, error) {
//		n, err := strconv.Atoi(items)
//		…
//		return strconv.Itoa(n - 1), err
//	})
//
// For other commands than GET and SET write a [Script].
//
// # What it promises
//
// A script first compares the token of the lock with the fence, the greatest token
// seen, and raises the fence; Redis runs nothing else meanwhile. So the scripts of one
// name run in the order of their tokens. A token that is smaller than an earlier one
// is refused with fence.ErrStale. The lock may be on any store.
//
// The greatest token of a name is in the key locker-fence:{name}, for ever: it may be
// deleted when no earlier holder can be alive. In a Redis Cluster the keys of the data
// must be in its hash slot: give them {name} in their own names. Redis refuses other
// keys (CROSSSLOT), and all keys for a lock whose name begins with }.
//
// # What it does not promise
//
// A fence is as durable as the data beside it: a failover to a replica that lags,
// or a restart without persistence, loses both. An eviction policy that takes keys
// without an expiry (allkeys-…) may remove the fence alone: do not use one.
//
// go-redis repeats a request whose answer was lost (MaxRetries), so a script may
// run twice. SET does no harm then; a script that counts has to see to that
// itself. If another holder came between the two runs, the error is ErrStale though
// the first run was done.
package redisfence

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/fence"
)

//go:embed guard.lua
var guard string

// Script is a Lua script that runs only for a holder whose token is not stale. The
// zero Script is not usable; see NewScript. All methods may be called from
// many goroutines at once.
type Script struct {
	script *redis.Script
}

// NewScript makes a Script of Lua as EVAL takes it. It sees the KEYS and ARGV that
// Run gets. It must be repeatable: see the package comment.
func NewScript(lua string) *Script {
	return &Script{script: redis.NewScript(guard + lua)}
}

// Run compares the token of lock with the fence of its name, raises the fence, and
// runs the script, all in one step. An error of the Cmd that wraps fence.ErrStale
// means that the lock was lost and that the script did not run, unless go-redis has
// repeated it: see the package comment.
func (s *Script) Run(ctx context.Context, c redis.Scripter, lock fence.Lock, keys []string, args ...any) *redis.Cmd {
	members, err := fence.Members(lock)
	if err == nil && c == nil {
		err = fmt.Errorf("redisfence: %w: no client", locker.ErrInvalidOption)
	}
	if err != nil {
		cmd := redis.NewCmd(ctx)
		cmd.SetErr(err)
		return cmd
	}
	keys, args = slices.Clone(keys), slices.Clone(args)
	for _, k := range members {
		keys = append(keys, fenceKey(k.Name()))
		args = append(args, k.Token())
	}
	cmd := s.script.Run(ctx, c, keys, append(args, len(members))...)
	if err := cmd.Err(); err != nil {
		cmd.SetErr(translate(err, members))
	}
	return cmd
}

var (
	get = NewScript("return redis.call('GET', KEYS[1])")
	set = NewScript("return redis.call('SET', KEYS[1], ARGV[1], 'KEEPTTL')")
)

// Update reads the text at a key, passes it to fn, and writes the result of fn. Both
// the read and the write are guarded, so that nobody else changes the value in
// between; fn may take its time. If ok is false there was no value. The key keeps its
// expiry.
//
// An error that wraps fence.ErrStale means that the lock was lost and that nothing was
// written, unless go-redis has repeated the write: see the package comment.
// An error of fn is returned as it is, and nothing is written.
// Any other error is the client's; if the write has no answer, it may have been
// done.
func Update(ctx context.Context, c redis.Scripter, lock fence.Lock, key string, fn func(value string, ok bool) (string, error)) error {
	if fn == nil {
		return fmt.Errorf("redisfence: %w: no function", locker.ErrInvalidOption)
	}
	value, err := get.Run(ctx, c, lock, []string{key}).Text()
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("redisfence: read %q: %w", key, err)
	}
	next, err := fn(value, err == nil)
	if err != nil {
		return err
	}
	if err := set.Run(ctx, c, lock, []string{key}, next).Err(); err != nil {
		return fmt.Errorf("redisfence: write %q: %w", key, err)
	}
	return nil
}

// fenceKey returns the key of a name's fence. The braces make the name its hash tag.
func fenceKey(name string) string { return "locker-fence:{" + name + "}" }

// translate returns the error that an answer of guard.lua means. Other errors stay as
// they are.
func translate(err error, members []fence.Lock) error {
	words := strings.Fields(err.Error())
	if len(words) < 3 || words[0] != "LOCKERSTALE" {
		return err
	}
	i, ierr := strconv.Atoi(words[1])
	seen, serr := strconv.ParseUint(words[2], 10, 64)
	if ierr != nil || serr != nil || i < 1 || i > len(members) {
		return err
	}
	k := members[i-1]
	return &fence.StaleError{Name: k.Name(), Token: k.Token(), Seen: seen}
}
