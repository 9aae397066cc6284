package redis

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisline"
)

// Times of waiting tickets.
const (
	liveness  = 3 * time.Second        // a process that shows no life for so long is taken for dead; LIVENESS in the scripts
	heartbeat = liveness / 3           // at the most, for each name it waits for
	quickest  = 100 * time.Millisecond // heartbeat for short leases
	grace     = 500 * time.Millisecond // life of a process that does not listen any more
)

// Notices to the channel of a process: one letter and what follows.
const (
	noticeGranted = 'g' // ms id
	noticeLook    = 'n' // ms, main key: look after that, somebody who may be dead was granted
	noticeLost    = 'l' // id token x|s name: a holder's ticket was broken
	noticeGone    = 'w' // id: a waiter's ticket was broken
)

// millis is a lease as Redis takes it, never shorter than asked.
func millis(d time.Duration) int64 {
	return max(1, int64((d+time.Millisecond-1)/time.Millisecond))
}

func kind(shared bool) string {
	if shared {
		return "s"
	}
	return "x"
}

// record is what the scripts keep of a ticket, after its ID, token and time:
// "channel limit grace ownerlength owner note".
func (d *Driver) record(r driver.Request) string {
	var buf [256]byte
	b := append(buf[:0], d.channel...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(r.Limit), 10)
	b = append(b, ' ')
	if d.single {
		b = strconv.AppendInt(b, grace.Milliseconds(), 10)
	} else {
		b = append(b, '0') // no one server knows all who listen
	}
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(len(r.Owner)), 10)
	b = append(b, ' ')
	b = append(b, r.Owner...)
	return string(append(b, r.Note...))
}

// parseRecord reads what record has written, with the time before it.
func parseRecord(s string) (t driver.Ticket, err error) {
	part := strings.SplitN(s, " ", 6)
	if len(part) < 6 {
		return t, fmt.Errorf("redis: not a ticket's record: %q", s)
	}
	since, err1 := strconv.ParseInt(strings.TrimPrefix(part[0], "?"), 10, 64)
	limit, err2 := strconv.Atoi(part[2])
	n, err3 := strconv.Atoi(part[4])
	if err := errors.Join(err1, err2, err3); err != nil || n < 0 || n > len(part[5]) {
		return t, fmt.Errorf("redis: not a ticket's record: %q", s)
	}
	t.Since = time.UnixMicro(since)
	t.Limit = limit
	t.Owner, t.Note = part[5][:n], part[5][n:]
	return t, nil
}

// outlook is what a waiting process is told of a line.
type outlook struct {
	after   time.Duration // the line may move by itself then; negative: it does not
	first   bool          // the first waiter is this process's
	foreign bool          // the holder is another client's, which tells nobody of its release
}

func parseOutlook(after, flags int64) outlook {
	return outlook{time.Duration(after) * time.Millisecond, flags&1 != 0, flags&2 != 0}
}

// acquireCall asks for a ticket, or again for its grant.
func (d *Driver) acquireCall(r driver.Request, wait bool) *redisline.Call {
	key := d.keys.Main(r.Name)
	form := "x"
	switch {
	case r.Shared && wait:
		form = "sw"
	case r.Shared:
		form = "s"
	case wait:
		form = "xw"
	}
	c := redisline.NewCall(redisline.Acquire, []string{key, d.keys.Fence(key)}, nil, millis(r.TTL), d.record(r), form)
	c.SetArg(0, c.Ticket(r.ID, true))
	c.Durable = d.durable
	return c
}

func (d *Driver) releaseCall(h driver.Hold, strays int) *redisline.Call {
	c := redisline.NewCall(redisline.Release, []string{d.keys.Main(h.Name)}, nil)
	if strays > 0 {
		c = redisline.NewCall(redisline.Release, []string{d.keys.Main(h.Name)}, nil, strays)
	}
	c.SetArg(0, c.Ticket(h.ID, false))
	return c
}

func (d *Driver) renewCall(rs []driver.Renewal) *redisline.Call {
	keys := make([]string, len(rs))
	args := make([]any, 0, 2*len(rs))
	for i, r := range rs {
		keys[i] = d.keys.Main(r.Name)
		args = append(args, r.ID, millis(r.TTL))
	}
	c := redisline.NewCall(redisline.Renew, keys, args...)
	if len(rs) > 0 {
		c.SetArg(0, c.Ticket(rs[0].ID, false))
	}
	c.Durable = d.durable
	return c
}

// answer is what Acquire was told.
type answer struct {
	token   uint64
	granted bool
	outlook outlook
}

// parseAcquire reads the answer of acquire.lua. driver.ErrLost: the ticket was
// released before the request came.
func parseAcquire(v any) (a answer, err error) {
	switch v := v.(type) {
	case string:
		a.granted = true
		a.token, err = strconv.ParseUint(v, 10, 64)
		return a, err
	case int64:
		if v == 0 {
			return a, driver.ErrNotAcquired
		}
		return a, driver.ErrLost
	case []any:
		if len(v) == 3 {
			token, _ := v[0].(string)
			after, ok1 := v[1].(int64)
			flags, ok2 := v[2].(int64)
			a.token, err = strconv.ParseUint(token, 10, 64)
			if ok1 && ok2 && err == nil {
				a.outlook = parseOutlook(after, flags)
				return a, nil
			}
		}
	}
	return a, unexpected("acquire", v)
}

// unexpected is the error for an answer that no script of ours gives.
func unexpected(script string, v any) error {
	return fmt.Errorf("redis: unexpected answer of the %s script: %v", script, v)
}

// ints reads an answer that is a list of n whole numbers.
func ints(script string, v any, n int) ([]int64, error) {
	list, ok := v.([]any)
	if !ok || len(list) != n {
		return nil, unexpected(script, v)
	}
	out := make([]int64, n)
	for i, e := range list {
		if out[i], ok = e.(int64); !ok {
			return nil, unexpected(script, v)
		}
	}
	return out, nil
}
