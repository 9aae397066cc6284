package consul

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/kvqueue"
)

// Keys, below the prefix:
//
//	~queue/<name>/<session>-<slot>   a ticket, locked by its session
//	~/protocol                       the version of all this
//	~/<session>                      written when a ticket of the session is broken
//	~/<session>/<id>                 a tombstone: this ticket must not be created any more
//	~/guard/<hash>/x and s           conditions of tries
//
// All but the version are locked by a session of behaviour "delete" and end with
// it. A ticket's ID is in its value, since its key is used again. No prefix has a ~, so
// no key of a longer prefix lies in a queue.
const guards = 256

// keyspace makes the keys.
type keyspace struct{ prefix string } // without a slash at its end

// queue returns the prefix of a name's tickets. The slash at its end keeps foo apart
// from foobar, and the escaping keeps foo apart from foo/bar.
func (k keyspace) queue(name string) string { return k.queues() + escape(name) + "/" }

// queues returns the prefix of all tickets.
func (k keyspace) queues() string { return k.prefix + "/~queue/" }

func (k keyspace) ticket(name, session string, slot int) string {
	return k.queue(name) + session + "-" + strconv.Itoa(slot)
}

// notice returns the key by which the driver of a session is notified.
func (k keyspace) notice(session string) string { return k.prefix + "/~/" + session }

func (k keyspace) tombstone(session, id string) string {
	return k.notice(session) + "/" + escape(id)
}

// protocol returns the key of the version in use. It outlives all sessions.
func (k keyspace) protocol() string { return k.prefix + "/~/protocol" }

// guards returns the prefix of a name's two guard keys, which other names may
// share.
func (k keyspace) guards(name string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return fmt.Sprintf("%s/~/guard/%02x/", k.prefix, h.Sum32()%guards)
}

// guard returns the guard key against shared or exclusive tickets.
func (k keyspace) guard(name string, shared bool) string {
	if shared {
		return k.guards(name) + "s"
	}
	return k.guards(name) + "x"
}

// nameOf returns the name in a ticket's key. It reports false for any other key.
func (k keyspace) nameOf(key string) (string, bool) {
	rest, ours := strings.CutPrefix(key, k.queues())
	name, _, ticket := strings.Cut(rest, "/")
	if !ours || !ticket {
		return "", false
	}
	return unescape(name)
}

// checkPrefix refuses prefixes that Consul's HTTP API would change or refuse.
func checkPrefix(prefix string) error {
	for part := range strings.SplitSeq(prefix, "/") {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("prefix %q: want parts that are neither empty nor dots, as in locker or team/locker", prefix)
		}
		for i := range len(part) {
			if !plain(part[i]) {
				return fmt.Errorf("prefix %q: want letters, digits, and any of - _ . / only", prefix)
			}
		}
	}
	return nil
}

// plain reports whether a byte certainly needs no escape in a key.
func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '-' || c == '_' || c == '.'
}

// escape makes a part of a path of any string, and different parts of different strings.
// Consul's HTTP API cleans paths and refuses keys with percent escapes. So the escape
// character is =, and no part begins with a dot.
func escape(s string) string {
	s = inPath.Replace(url.QueryEscape(s))
	if strings.HasPrefix(s, ".") {
		s = "=2E" + s[1:]
	}
	return s
}

var inPath = strings.NewReplacer("%", "=", "+", "=20")

// unescape undoes escape; it reports false for what escape does not write of a name.
func unescape(part string) (name string, ok bool) {
	name, err := url.PathUnescape(strings.ReplaceAll(part, "=", "%"))
	return name, err == nil && name != "" && escape(name) == part
}

// value is what a ticket's key holds.
type value struct {
	ID     string `json:"id"`
	Owner  string `json:"owner,omitempty"`
	Note   string `json:"note,omitempty"`
	Shared bool   `json:"shared,omitempty"`
	Limit  int    `json:"limit,omitempty"`
	TTL    int64  `json:"ttl_ms"`
	Joined int64  `json:"joined_ms"` // when it was queued, by the client's clock: for people only
}

func encode(r *driver.Request, ttl time.Duration) []byte {
	b, _ := json.Marshal(value{ // cannot fail: strings and numbers
		ID: r.ID, Owner: r.Owner, Note: r.Note, Shared: r.Shared, Limit: r.Limit,
		TTL: ttl.Milliseconds(), Joined: time.Now().UnixMilli(),
	})
	return b
}

// mostMillis is the longest time.Duration, in milliseconds.
const mostMillis = math.MaxInt64 / int64(time.Millisecond)

var errForeign = errors.New("is not a ticket but another program's: only locker may write below its prefix")

// parseQueue makes a queue of the pairs under a name's prefix, in order. A key that no
// session locks blocks nobody: it is the rest of a ticket that an operator has unlocked
// by hand.
func parseQueue(name string, pairs api.KVPairs) ([]kvqueue.Record, error) {
	queue := make([]kvqueue.Record, 0, len(pairs))
	for _, p := range pairs {
		if p.Session == "" {
			continue
		}
		var v value
		if err := json.Unmarshal(p.Value, &v); err != nil || v.ID == "" || v.Limit < 0 || v.TTL < 0 || v.TTL > mostMillis {
			return nil, fmt.Errorf("key %q of index %d %w", p.Key, p.CreateIndex, errForeign)
		}
		queue = append(queue, kvqueue.Record{
			Ticket: kvqueue.Ticket{
				Entry: kvqueue.Entry{Key: p.Key, Number: p.CreateIndex, Version: p.ModifyIndex, Shared: v.Shared, Limit: v.Limit},
				Name:  name, ID: v.ID, Session: p.Session,
			},
			Shown: driver.Ticket{
				ID: v.ID, Token: p.CreateIndex, Owner: v.Owner, Note: v.Note, Shared: v.Shared, Limit: v.Limit,
				Since: time.UnixMilli(v.Joined), Remaining: time.Duration(v.TTL) * time.Millisecond,
			},
		})
	}
	slices.SortFunc(queue, func(a, b kvqueue.Record) int { return cmp.Compare(a.Number, b.Number) })
	return queue, nil
}

// snapshot returns a queue for the engine, complete as of an index.
func snapshot(queue []kvqueue.Record, index uint64) *kvqueue.Snapshot {
	s := &kvqueue.Snapshot{Complete: index, Entries: make([]kvqueue.Entry, len(queue))}
	for i, r := range queue {
		s.Entries[i] = r.Entry
	}
	return s
}
