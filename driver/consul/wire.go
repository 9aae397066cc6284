package consul

import (
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
//	<bucket>/<name>/<session>-<slot>    a ticket, locked by its session
//	~/<session>                         a session's letter box (letterbox.go)
//	~/<session>/<id>                    a ticket that must not be created any more (lease.go)
//	~/guard/<hash>/x and s              what a try is conditional on (try.go)
//
// All of them are locked by a session of behaviour "delete" and die with it.
// The bucket, a hash of the name, lets many names be watched at once. A ticket's
// ID is in its value; its key is used again (slots.go).
const (
	buckets  = 32
	guards   = 256
	internal = "~"
)

// keyspace knows how keys are made.
type keyspace struct{ prefix string } // without a slash at its end

func hashOf(name string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return h.Sum32()
}

func (k keyspace) bucket(name string) string {
	n := hashOf(name) % buckets
	return k.prefix + "/" + string(hexLower[n>>4]) + string(hexLower[n&15]) + "/"
}

// line is the prefix of a name's tickets. Its slash at the end keeps foo apart
// from foobar, and the escaping keeps it apart from foo/bar.
func (k keyspace) line(name string) string { return k.bucket(name) + escape(name) + "/" }

func (k keyspace) ticket(name, session string, slot int) string {
	return k.line(name) + session + "-" + strconv.Itoa(slot)
}

func (k keyspace) letterbox(session string) string {
	return k.prefix + "/" + internal + "/" + session
}

func (k keyspace) barred(session, id string) string {
	return k.letterbox(session) + "/" + escape(id)
}

// guards is the prefix of the two guard keys of a name, which other names may
// share.
func (k keyspace) guards(name string) string {
	n := hashOf(name) / buckets % guards
	return k.prefix + "/" + internal + "/guard/" + string(hexLower[n>>4]) + string(hexLower[n&15]) + "/"
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
	rest, ok := strings.CutPrefix(key, k.prefix+"/")
	if !ok {
		return "", false
	}
	parts := strings.Split(rest, "/")
	if len(parts) != 3 || parts[0] == internal {
		return "", false
	}
	return unescape(parts[1])
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

const (
	hexDigits = "0123456789ABCDEF"
	hexLower  = "0123456789abcdef"
)

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

func newValue(r driver.Request, ttl time.Duration) []byte {
	b, _ := json.Marshal(value{ // cannot fail: strings and numbers
		ID: r.ID, Owner: r.Owner, Note: r.Note, Shared: r.Shared, Limit: r.Limit,
		TTL: ttl.Milliseconds(), Joined: time.Now().UnixMilli(),
	})
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

// An entry is a ticket as it stands in the store.
type entry struct {
	pair
	value
}

var errForeign = errors.New("is not a ticket but another program's: only locker may write below its prefix")

// parseLine makes a line of the pairs under a name's prefix. A key that
// nobody's session locks holds nothing up: it is the rest of a ticket that an
// operator has unlocked by hand.
func parseLine(pairs []pair) ([]entry, error) {
	line := make([]entry, 0, len(pairs))
	for _, p := range pairs {
		if p.Session == "" {
			continue
		}
		e := entry{pair: p}
		if err := json.Unmarshal(p.Value, &e.value); err != nil || e.ID == "" {
			return nil, fmt.Errorf("key %q of index %d %w", p.Key, p.CreateIndex, errForeign)
		}
		line = append(line, e)
	}
	slices.SortFunc(line, func(a, b entry) int {
		if a.CreateIndex != b.CreateIndex {
			if a.CreateIndex < b.CreateIndex {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Key, b.Key)
	})
	return line, nil
}

// tickets is the line as the seam shows it, without what only holders know.
func tickets(line []entry) []driver.Ticket {
	ts := make([]driver.Ticket, len(line))
	for i, e := range line {
		ts[i] = driver.Ticket{
			ID: e.ID, Token: e.CreateIndex, Owner: e.Owner, Note: e.Note,
			Shared: e.Shared, Limit: e.Limit, Since: time.UnixMilli(e.Joined),
		}
	}
	return ts
}
