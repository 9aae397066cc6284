package redlock

import (
	"hash/fnv"
	"math"
	"strconv"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/redisqueue"
)

// ACLCommands are the commands for which a user of the nodes needs the right, besides the
// keys and the channels that begin with the prefix: ~locker:* &locker:*. scan and
// getrange are for listing.
const ACLCommands = "evalsha script|load time get set del exists pttl pexpire " +
	"hget hset hdel hlen zadd zrem zscore zcard zcount zrange zrevrange zrangebyscore getrange " +
	"publish subscribe unsubscribe ping select scan"

// buckets is for how many sets of names a node keeps a fence.
const buckets = 1024

// bucket returns the fence of a name.
func bucket(name string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return strconv.FormatUint(uint64(h.Sum32()%buckets), 36)
}

// fences is the key that holds the fences of all names.
func (d *Driver) fences() string { return d.keys.Prefix + ":fences" }

// millis is how many milliseconds a node has to keep a lease of ttl: the node's clock may
// run faster than the holder's by the drift, and Redis counts in milliseconds.
func (d *Driver) millis(ttl time.Duration) int64 {
	ms := math.Ceil(float64(ttl) / float64(time.Millisecond) * (1 + d.drift))
	return int64(min(ms, float64(math.MaxInt64/1e6))) + 2
}

// form is what redlock_queue.lua keeps of a ticket: "round since channel limit
// ownerlength blob".
var form = redisqueue.Form{Word: "redlock", Head: 1}

// What a ticket's process asks a node for, and where its number comes from.
const (
	orWait   = 'w' // hold, or else wait in the queue
	justWait = 'j' // wait in the queue
	orLeave  = 't' // hold, or else leave nothing

	guessed     = 'n'
	numberAbove = 'r' // above all that a majority has answered
	kept        = 'k' // the ticket has it on a majority
	mended      = 'm' // the ticket holds on a majority
)

// scripts are all that are in use.
var scripts = []*redisqueue.Script{
	redisqueue.RedlockAcquire, redisqueue.RedlockYield, redisqueue.RedlockRelease, redisqueue.RedlockRenew,
	redisqueue.RedlockKeepAlive, redisqueue.RedlockShorten, redisqueue.RedlockBreak, redisqueue.RedlockInspect, redisqueue.Ping, redisqueue.Protocol,
}

// acquireCall asks a node for a ticket; if the ticket holds there, it holds for ttl.
func (d *Driver) acquireCall(t *ticket, ttl time.Duration, number uint64, attempt int64, mode, origin byte) *redisqueue.Call {
	c := d.keys.Call(redisqueue.RedlockAcquire, []string{t.key, d.fences()}, nil, number, d.millis(ttl),
		redisqueue.Kind(t.r.Shared)+string([]byte{mode, origin}), t.bucket, attempt, t.record)
	c.SetArg(0, c.Ticket(t.r.ID, false))
	return c
}

// yieldCall makes a ticket wait again if it holds since an attempt.
func (d *Driver) yieldCall(t *ticket, attempt int64) *redisqueue.Call {
	c := d.keys.Call(redisqueue.RedlockYield, []string{t.key}, nil, attempt)
	c.SetArg(0, c.Ticket(t.r.ID, false)) // it queues the ticket
	return c
}

// releaseCall removes a ticket: for good, or what attempts up to the last one have done.
func (d *Driver) releaseCall(n *node, r removal) *redisqueue.Call {
	last := ""
	if r.last > 0 {
		last = strconv.FormatInt(r.last, 10)
	}
	return d.keys.Call(redisqueue.RedlockRelease, []string{d.keys.Main(r.h.Name)}, r.h.ID, last, unanswered{n, r.h.ID})
}

// unanswered is an argument of a release: 1 if, when the release is sent, a request for the ticket may still arrive.
// What was sent before has been answered by then, or given up.
type unanswered struct {
	n  *node
	id string
}

// MarshalBinary is how go-redis writes the argument.
func (u unanswered) MarshalBinary() ([]byte, error) {
	if u.n.unanswered.Requests(u.id) > 0 {
		return []byte("1"), nil
	}
	return nil, nil
}

func (d *Driver) renewCall(rs []driver.Renewal) *redisqueue.Call {
	keys := make([]string, len(rs))
	args := make([]any, 0, 2*len(rs))
	for i, r := range rs {
		keys[i] = d.keys.Main(r.Name)
		if r.TTL == rest {
			args = append(args, r.ID, remaining{d, r.ID})
		} else {
			args = append(args, r.ID, d.millis(r.TTL))
		}
	}
	return d.keys.Call(redisqueue.RedlockRenew, keys, args...)
}

// rest is the TTL of a renewal that does not lengthen the lease, but sets it on nodes that have less of it.
const rest = 0

// remaining is an argument of such a renewal: what is left of the lease when the request is sent. It is nothing if the ticket
// was released or its lease was shortened since.
type remaining struct {
	d  *Driver
	id string
}

// MarshalBinary is how go-redis writes the argument.
func (r remaining) MarshalBinary() ([]byte, error) {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	if t := r.d.tickets[r.id]; t != nil && t.held() {
		return strconv.AppendInt(nil, r.d.millis(time.Until(t.until)), 10), nil
	}
	return []byte("0"), nil
}

// What a node has answered to a request for a ticket.
const (
	holds    = 1
	queued   = 2
	refused  = 0 // the number is too small
	blocked  = 3
	known    = 4 // by another number, which it keeps
	released = -1
)

// answer is what a node has answered.
type answer struct {
	what    int64
	now     int64              // the node's clock, µs
	floor   uint64             // refused: a number has to be above this; known: the number
	round   int64              // known, and the proposal was overtaken: the attempt that overtook it
	ahead   []string           // with a limit, the shared tickets ahead: all if it holds, else as many as the limit; blocked: who is in the way
	alone   bool               // blocked: ahead is one ticket, which is in the way by itself
	ready   bool               // queued: it may hold
	foreign bool               // blocked: by another library's lock that is not a string
	outlook redisqueue.Outlook // queued
}

// lacks reports whether the node has nothing of the ticket.
func (a answer) lacks() bool { return a.what == refused || a.what == blocked }

// parseAcquire reads {what, now, n, flags, ids}; see redlock_acquire.lua.
func parseAcquire(v any) (a answer, err error) {
	list, _ := v.([]any)
	if len(list) == 5 {
		ids, _ := list[4].([]any)
		for _, id := range ids {
			text, _ := id.(string)
			a.ahead = append(a.ahead, text)
		}
		list = list[:4]
	}
	n, err := redisqueue.Ints("acquire", list, 4)
	if err != nil {
		return a, err
	}
	a.what, a.now = n[0], n[1]
	switch a.what {
	case queued:
		a.outlook, a.ready = redisqueue.ParseOutlook(n[2], n[3]), n[3]&4 != 0
	case refused, known:
		a.floor, a.round = uint64(n[2]), n[3] //nolint:gosec // numbers are positive
	case blocked:
		a.foreign, a.alone = n[3]&2 != 0, n[3]&1 != 0
	}
	return a, nil
}
