package redlock

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math"
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
)

// Notices to the channel of a process: one letter and what follows.
const (
	noticeReady = 'g' // id: it may hold on this node
	noticeLost  = 'l' // id token x|s name: a holder's ticket was broken
	noticeGone  = 'w' // id: a waiter's ticket was broken
)

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

// millis is for how long a node has to keep a lease of d: the node's clock may
// run faster than the holder's by the drift, and Redis counts in milliseconds.
func (d *Driver) millis(ttl time.Duration) int64 {
	ms := math.Ceil(float64(ttl) / float64(time.Millisecond) * (1 + d.drift))
	return int64(min(ms, float64(math.MaxInt64/1e6))) + 2
}

func kind(shared bool) string {
	if shared {
		return "s"
	}
	return "x"
}

// record is what the scripts keep of a ticket, after its round and time:
// "channel limit ownerlength owner note".
func (d *Driver) record(r driver.Request) string {
	var buf [256]byte
	b := append(buf[:0], d.channel...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(r.Limit), 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(len(r.Owner)), 10)
	b = append(b, ' ')
	b = append(b, r.Owner...)
	return string(append(b, r.Note...))
}

// parseRecord reads what record has written, with the round and time before it.
func parseRecord(s string) (t driver.Ticket, err error) {
	part := strings.SplitN(s, " ", 6)
	if len(part) < 6 {
		return t, fmt.Errorf("redlock: not a ticket's record: %q", s)
	}
	since, err1 := strconv.ParseInt(part[1], 10, 64)
	limit, err2 := strconv.Atoi(part[3])
	n, err3 := strconv.Atoi(part[4])
	if err := errors.Join(err1, err2, err3); err != nil || n < 0 || n > len(part[5]) {
		return t, fmt.Errorf("redlock: not a ticket's record: %q", s)
	}
	t.Since = time.UnixMicro(since)
	t.Limit = limit
	t.Owner, t.Note = part[5][:n], part[5][n:]
	return t, nil
}

// What a ticket's process asks a node for, and where its number comes from.
const (
	orWait   = 'w' // hold, or else wait in line
	justJoin = 'j' // wait in line
	orLeave  = 't' // hold, or else leave nothing

	guessed = 'n'
	above   = 'r' // above all that a majority has answered
	kept    = 'k' // the ticket has it on a majority
)

// acquireCall asks a node for a ticket.
func (d *Driver) acquireCall(t *ticket, number uint64, round int64, mode, origin byte) *call {
	return &call{
		script: redisline.RedlockAcquire,
		keys:   []string{t.key, d.fences()},
		args: []any{
			t.r.ID, number, d.millis(t.ttl()), kind(t.r.Shared) + string([]byte{mode, origin}),
			t.bucket, round, t.record,
		},
		id: t.r.ID,
	}
}

// What a node has answered to a request for a ticket.
const (
	holds    = 1
	inLine   = 2
	refused  = 0 // the number is too small
	blocked  = 3
	known    = 4 // by another number, which it keeps
	released = -1
)

// answer is what a node has answered.
type answer struct {
	what    int64
	now     int64    // the node's clock, µs
	floor   uint64   // refused: what a number has to be above; known: the number
	ahead   []string // holds: the shared tickets ahead, where there is a limit
	ready   bool     // in line: it may hold
	outlook outlook  // in line
}

func parseAcquire(v any) (a answer, err error) {
	list, ok := v.([]any)
	if !ok || len(list) < 2 {
		return a, unexpected("acquire", v)
	}
	a.what, ok = list[0].(int64)
	now, ok2 := list[1].(int64)
	if !ok || !ok2 {
		return a, unexpected("acquire", v)
	}
	a.now = now
	switch rest := list[2:]; a.what {
	case holds:
		for _, e := range rest {
			id, _ := e.(string)
			a.ahead = append(a.ahead, id)
		}
		return a, nil
	case blocked, released:
		return a, nil
	case refused, known:
		if len(rest) == 1 {
			floor, ok := rest[0].(int64)
			a.floor = uint64(floor) //nolint:gosec // numbers are positive
			if ok {
				return a, nil
			}
		}
	case inLine:
		if len(rest) == 2 {
			after, ok1 := rest[0].(int64)
			flags, ok2 := rest[1].(int64)
			a.outlook, a.ready = parseOutlook(after, flags), flags&4 != 0
			if ok1 && ok2 {
				return a, nil
			}
		}
	}
	return a, unexpected("acquire", v)
}

// outlook is what a waiting process is told of a line on one node.
type outlook struct {
	after   time.Duration // the line may move by itself then; negative: it does not
	look    bool          // this process is to look then
	foreign bool          // the holder is another client's, which tells nobody of its release
}

func parseOutlook(after, flags int64) outlook {
	return outlook{time.Duration(after) * time.Millisecond, flags&1 != 0, flags&2 != 0}
}

// unexpected is the error for an answer that no script of ours gives.
func unexpected(script string, v any) error {
	return fmt.Errorf("redlock: unexpected answer of the %s script: %v", script, v)
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
