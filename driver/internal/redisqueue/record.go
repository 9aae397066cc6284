package redisqueue

import (
	"crypto/sha1"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Foreign is the owner of a lock that another client of Redis holds.
const Foreign = "(another client of Redis)"

// foreignHolder is the ticket of another client of Redis. Its token is the fingerprint of the
// value that it has set, as break.lua computes it, so that only what was shown is broken.
func foreignHolder(value string) driver.Ticket {
	sum := sha1.Sum([]byte(value)) //nolint:gosec // it need not be secret
	return driver.Ticket{ID: value, Token: uint64(binary.BigEndian.Uint32(sum[:])) + 1, Owner: Foreign, Held: true}
}

// ErrForeign says that the key where the holder would be is not a string: it may be the
// hash of a lock of Redisson.
var ErrForeign = fmt.Errorf("%w: another library's lock, or other data that is not a string, is at its key", driver.ErrNotAcquired)

// Kind is the letter by which the scripts distinguish shared and exclusive tickets.
func Kind(shared bool) string {
	if shared {
		return "s"
	}
	return "x"
}

// A Form says which fields the records of a driver have besides "since channel limit
// ownerlength blob", where blob is the owner and the note. Only blob may be empty.
type Form struct {
	Word string // begins the value of a main key
	Head int    // fields before since
}

// Record is the record of a ticket as the scripts are given it, without the fields before
// the channel.
func Record(channel string, r driver.Request) string {
	var buf [256]byte
	b := append(buf[:0], channel...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(r.Limit), 10)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(len(r.Owner)), 10)
	b = append(b, ' ')
	b = append(b, r.Owner...)
	return string(append(b, r.Note...))
}

// Parse reads a whole record.
func (f Form) Parse(s string) (t driver.Ticket, err error) {
	limit := f.Head + 2
	owner := limit + 1
	part := strings.SplitN(s, " ", owner+2)
	if len(part) < owner+2 {
		return t, fmt.Errorf("not a ticket's record: %q", s)
	}
	since, err1 := strconv.ParseInt(strings.TrimPrefix(part[f.Head], "?"), 10, 64) // ?: a provisional lease
	most, err2 := strconv.Atoi(part[limit])
	n, err3 := strconv.Atoi(part[owner])
	blob := part[owner+1]
	if err := errors.Join(err1, err2, err3); err != nil || most < 0 || n < 0 || n > len(blob) {
		return t, fmt.Errorf("not a ticket's record: %q", s)
	}
	t.Since = time.UnixMicro(since)
	t.Limit = most
	t.Owner, t.Note = blob[:n], blob[n:]
	return t, nil
}

// Outlook is what a waiting process learns of how its queue will move.
type Outlook struct {
	After   time.Duration // the queue may move by itself after that; negative: it does not
	Poll    bool          // this process is to poll then: its ticket is the first, or the holder may be dead
	Foreign bool          // the holder is another client, which notifies nobody of its release
}

// ParseOutlook reads what the scripts answer: milliseconds and flags.
func ParseOutlook(after, flags int64) Outlook {
	return Outlook{time.Duration(after) * time.Millisecond, flags&1 != 0, flags&2 != 0}
}

// Unsubscribed reports whether the answer to a heartbeat says that this process has no subscription
// to the server that has answered.
func Unsubscribed(heartbeat any) bool {
	list, _ := heartbeat.([]any)
	if len(list) < 2 {
		return false
	}
	flags, _ := list[1].(int64)
	return flags&4 != 0
}

// Unexpected is the error for an answer that no script of ours gives.
func Unexpected(script string, v any) error {
	return fmt.Errorf("unexpected answer of the %s script: %v", script, v)
}

// Ints reads an answer that is a list of n whole numbers.
func Ints(script string, v any, n int) ([]int64, error) {
	list, ok := v.([]any)
	if !ok || len(list) != n {
		return nil, Unexpected(script, v)
	}
	out := make([]int64, n)
	for i, e := range list {
		if out[i], ok = e.(int64); !ok {
			return nil, Unexpected(script, v)
		}
	}
	return out, nil
}

// Notifications to the channel of a process: one letter and what follows.
const (
	NoticeGrant = 'g' // driver redis: ms token id; redlock: id, which may hold on this node
	NoticeCheck = 'n' // main key: the holder's lease ends earlier than this process knows
	NoticeLost  = 'l' // id token x|s name: a ticket was broken
)

// ParseLoss reads the notification that a ticket was broken: "id token x|s
// name".
func ParseLoss(s string) (h driver.Hold, ok bool) {
	part := strings.SplitN(s, " ", 4)
	if len(part) != 4 {
		return h, false
	}
	token, err := strconv.ParseUint(part[1], 10, 64)
	return driver.Hold{Name: part[3], ID: part[0], Token: token, Shared: part[2] == "s"}, err == nil
}
