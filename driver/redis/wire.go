package redis

import (
	"math"
	"strconv"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
)

// ACLCommands are the commands for which a user of Redis needs the right, besides the
// keys and the channels that begin with the prefix: ~locker:* &locker:*. wait is for
// WithReplicas, scan and getrange for listing; a Cluster needs cluster|slots and command
// besides.
const ACLCommands = "evalsha eval time get set del exists pttl pexpire " +
	"hget hset hdel hlen zadd zrem zscore zcard zcount zrange zrevrange zrangebyscore getrange " +
	"publish subscribe unsubscribe ping select scan wait"

// millis is a lease in whole milliseconds, never shorter than requested, except that the
// longest Duration is cut to whole ones.
func millis(d time.Duration) int64 {
	return max(1, int64((min(d, math.MaxInt64-time.Millisecond)+time.Millisecond-1)/time.Millisecond))
}

// form is what queue.lua keeps of a ticket: "since channel limit ownerlength blob".
var form = redisqueue.Form{Word: "locker"}

// acquireCall asks for a ticket, or again for its grant.
func (d *Driver) acquireCall(r driver.Request, wait bool) *redisqueue.Call {
	key := d.keys.Main(r.Name)
	want := "x"
	switch {
	case r.Shared && wait:
		want = "sw"
	case r.Shared:
		want = "s"
	case wait:
		want = "xw"
	}
	c := d.keys.Call(redisqueue.Acquire, d.keys.All(key, d.keys.Fence(key)), nil, millis(r.TTL), redisqueue.Record(d.channel, r), want)
	c.SetArg(0, c.Ticket(r.ID, true))
	c.Durable = d.durable
	c.Join = want == "xw" && !d.durable
	return c
}

func (d *Driver) renewCall(rs []driver.Renewal) *redisqueue.Call {
	keys := make([]string, 0, len(rs))
	args := make([]any, 0, 2*len(rs))
	for _, r := range rs {
		keys = append(keys, d.keys.Held(d.keys.Main(r.Name), r.Shared)...) // in a Cluster rs has one lease
		args = append(args, r.ID, millis(r.TTL))
	}
	c := d.keys.Call(redisqueue.Renew, keys, args...)
	if len(rs) > 0 {
		c.SetArg(0, c.Ticket(rs[0].ID, false))
	}
	c.Durable = d.durable
	return c
}

// answer is the answer to Acquire.
type answer struct {
	token   uint64
	granted bool
	outlook redisqueue.Outlook
	before  string // the ticket directly before it, if both wait and are exclusive
}

// parseAcquire reads the answer of acquire.lua. It returns driver.ErrLost if the ticket
// was released before the request came.
func parseAcquire(v any) (a answer, err error) {
	switch v := v.(type) {
	case string:
		a.granted = true
		a.token, err = strconv.ParseUint(v, 10, 64)
		return a, err
	case int64:
		switch v {
		case 0:
			return a, driver.ErrNotAcquired
		case -2:
			return a, redisqueue.ErrForeign
		}
		return a, driver.ErrLost
	case []any:
		if len(v) == 4 {
			a.before, _ = v[3].(string)
			v = v[:3]
		}
		if len(v) == 3 {
			token, _ := v[0].(string)
			after, ok1 := v[1].(int64)
			flags, ok2 := v[2].(int64)
			a.token, err = strconv.ParseUint(token, 10, 64)
			if ok1 && ok2 && err == nil {
				a.outlook = redisqueue.ParseOutlook(after, flags)
				return a, nil
			}
		}
	}
	return a, redisqueue.Unexpected("acquire", v)
}
