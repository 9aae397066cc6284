package consul

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Keys, below the prefix:
//
//	~queue/<name>/<session>-<slot>   a ticket, locked by its session
//	~/protocol                       the version of all this
//	~/<session>                      is written to when a ticket of the session is broken
//	~/<session>/<id>                 a tombstone: this ticket must not be created any more
//	~/guard/<hash>/x and s           what a try is conditional on
//
// All but the version are locked by a session of behaviour "delete" and die with
// it. A ticket's ID is in its value, since its key is used again. No prefix holds
// a ~, so that a longer one does not reach into a queue.
const guards = 256

// keyspace knows how keys are made.
type keyspace struct{ prefix string } // without a slash at its end

// queue is the prefix of a name's tickets. Its slash at the end keeps foo apart
// from foobar, and the escaping keeps it apart from foo/bar.
func (k keyspace) queue(name string) string { return k.queues() + escape(name) + "/" }

// queues is the prefix of all tickets.
func (k keyspace) queues() string { return k.prefix + "/~queue/" }

func (k keyspace) ticket(name, session string, slot int) string {
	return k.queue(name) + session + "-" + strconv.Itoa(slot)
}

// notice is the key that a session is notified by.
func (k keyspace) notice(session string) string { return k.prefix + "/~/" + session }

func (k keyspace) tombstone(session, id string) string {
	return k.notice(session) + "/" + escape(id)
}

// protocol is the key that says which version is in use. It outlives all sessions.
func (k keyspace) protocol() string { return k.prefix + "/~/protocol" }

// guards is the prefix of the two guard keys of a name, which other names may
// share.
func (k keyspace) guards(name string) string {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return fmt.Sprintf("%s/~/guard/%02x/", k.prefix, h.Sum32()%guards)
}

// guard is the guard key against shared or exclusive tickets.
func (k keyspace) guard(name string, shared bool) string {
	if shared {
		return k.guards(name) + "s"
	}
	return k.guards(name) + "x"
}

// nameOf takes the name out of a ticket's key; false: it is not a ticket's.
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

// plain are the bytes that stand for themselves in a key. Consul's HTTP API
// cleans paths and refuses keys with percent escapes, so = is the escape.
func plain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
		c == '-' || c == '_' || c == '.'
}

const hexDigits = "0123456789ABCDEF"

// escape makes one part of a path of any string. It is one to one.
func escape(s string) string {
	if isPlain(s) {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if plain(c) && (c != '.' || i > 0) { // no part is . or ..
			b.WriteByte(c)
			continue
		}
		b.WriteByte('=')
		b.WriteByte(hexDigits[c>>4])
		b.WriteByte(hexDigits[c&15])
	}
	return b.String()
}

func isPlain(s string) bool {
	for i := range len(s) {
		if !plain(s[i]) || i == 0 && s[i] == '.' {
			return false
		}
	}
	return true
}

func unescape(s string) (string, bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '=' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		hi, lo := strings.IndexByte(hexDigits, s[i+1]), strings.IndexByte(hexDigits, s[i+2])
		if hi < 0 || lo < 0 {
			return "", false
		}
		b.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	return b.String(), true
}

// value is what a ticket's key holds.
type value struct {
	ID     string `json:"id"`
	Owner  string `json:"owner,omitempty"`
	Note   string `json:"note,omitempty"`
	Shared bool   `json:"shared,omitempty"`
	Limit  int    `json:"limit,omitempty"`
	TTL    int64  `json:"ttl_ms"`
	Joined int64  `json:"joined_ms"` // by the clock of who joined: for people only
}

func valueOf(r driver.Request, ttl time.Duration) value {
	return value{
		ID: r.ID, Owner: r.Owner, Note: r.Note, Shared: r.Shared, Limit: r.Limit,
		TTL: ttl.Milliseconds(), Joined: time.Now().UnixMilli(),
	}
}

func (v value) encode() []byte {
	b, _ := json.Marshal(v) // cannot fail: strings and numbers
	return b
}

// pair is a key as the KV and transaction APIs tell it.
type pair struct {
	Key         string
	Value       []byte
	Session     string
	CreateIndex uint64
	ModifyIndex uint64
}

// An entry is a ticket in the store.
type entry struct {
	pair
	value
}

// ticket is the entry as the driver interface shows it, without what only holders know.
func (e entry) ticket() driver.Ticket {
	return driver.Ticket{
		ID: e.ID, Token: e.CreateIndex, Owner: e.Owner, Note: e.Note,
		Shared: e.Shared, Limit: e.Limit, Since: time.UnixMilli(e.Joined),
	}
}

func tickets(queue []entry) []driver.Ticket {
	ts := make([]driver.Ticket, len(queue))
	for i, e := range queue {
		ts[i] = e.ticket()
	}
	return ts
}

var errForeign = errors.New("is not a ticket but another program's: only locker may write below its prefix")

// parseQueue makes a queue of the pairs under a name's prefix. A key that
// nobody's session locks blocks nobody: it is the rest of a ticket that an
// operator has unlocked by hand.
func parseQueue(pairs []pair) ([]entry, error) {
	queue := make([]entry, 0, len(pairs))
	for _, p := range pairs {
		if p.Session == "" {
			continue
		}
		e := entry{pair: p}
		if err := json.Unmarshal(p.Value, &e.value); err != nil || e.ID == "" {
			return nil, fmt.Errorf("key %q of index %d %w", p.Key, p.CreateIndex, errForeign)
		}
		e.Value = nil // it is in value
		queue = append(queue, e)
	}
	slices.SortFunc(queue, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.CreateIndex, b.CreateIndex), strings.Compare(a.Key, b.Key))
	})
	return queue, nil
}
