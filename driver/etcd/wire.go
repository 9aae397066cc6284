package etcd

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker/driver"
)

// A ticket is one key:
//
//	<prefix>/<name>#<class><instance>-<slot>
//
// The name is escaped so that it holds neither # nor /, and a prefix holds no
// #, so that no line lies inside another and no name, nor a longer prefix,
// reaches into a line. The class is x for an exclusive ticket and s for a
// shared one: a reader asks whether there is any x, and how many s, without
// reading a single ticket.
//
// Instance and slot make the key unique among the live tickets, and are used
// again by later tickets of the same driver: etcd keeps every key it has ever
// seen in memory until it is compacted, and walks over the deleted ones when it
// reads a range, so a key of its own for each ticket would make a line slower
// with every lock that was ever taken.
//
// The key's create revision is the ticket's number. etcd's revisions only grow.
const (
	exclusiveClass = "x"
	sharedClass    = "s"
)

// record is the value of a ticket's key.
type record struct {
	ID    string `json:"id"`
	Owner string `json:"owner,omitempty"`
	Note  string `json:"note,omitempty"`
	Limit int    `json:"limit,omitempty"`
	Since int64  `json:"since,omitempty"` // of joining, in ms since 1970, by the client's clock
}

// encodeRecord writes the record of most tickets without the help of
// encoding/json, which costs as much as the rest of a cycle's work here.
func encodeRecord(r driver.Request, now time.Time) []byte {
	if verbatim(r.ID) && verbatim(r.Owner) && r.Owner != "" && r.Note == "" && r.Limit == 0 {
		b := make([]byte, 0, len(r.ID)+len(r.Owner)+48)
		b = append(append(b, `{"id":"`...), r.ID...)
		b = append(append(b, `","owner":"`...), r.Owner...)
		b = strconv.AppendInt(append(b, `","since":`...), now.UnixMilli(), 10)
		return append(b, '}')
	}
	b, err := json.Marshal(record{
		ID: r.ID, Owner: r.Owner, Note: r.Note, Limit: r.Limit, Since: now.UnixMilli(),
	})
	if err != nil { // strings and integers always marshal
		panic(fmt.Sprintf("etcd: encode record: %v", err))
	}
	return b
}

// verbatim reports whether JSON writes a text as it is.
func verbatim(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// decodeTicket reads a ticket as a line shows it. A value that is not ours
// stands in line all the same.
func decodeTicket(line string, kv *mvccpb.KeyValue) driver.Ticket {
	var r record
	_ = json.Unmarshal(kv.Value, &r)
	t := driver.Ticket{
		ID: r.ID, Token: uint64(kv.CreateRevision), Owner: r.Owner, Note: r.Note,
		Shared: isShared(line, string(kv.Key)), Limit: r.Limit,
	}
	if r.Since > 0 {
		t.Since = time.UnixMilli(r.Since)
	}
	return t
}

// linePrefix is what the keys of a name's tickets begin with.
func (d *Driver) linePrefix(name string) string {
	return d.prefix + "/" + escape(name) + "#"
}

func class(shared bool) string {
	if shared {
		return sharedClass
	}
	return exclusiveClass
}

// isTicket reports whether a key of the line is one that a driver has put there.
func isTicket(line, key string) bool {
	return len(key) > len(line) && strings.Contains(exclusiveClass+sharedClass, key[len(line):len(line)+1])
}

func isShared(line, key string) bool { return strings.HasPrefix(key[len(line):], sharedClass) }

// slotKey is the key of a slot of this driver.
func (d *Driver) slotKey(line string, shared bool, slot int) string {
	return line + class(shared) + d.instance + "-" + strconv.Itoa(slot)
}

// ownSlot returns the slot that a key of the line stands for, if it is one of
// this driver's.
func (d *Driver) ownSlot(line, key string) (slot int, ok bool) {
	if !isTicket(line, key) {
		return 0, false
	}
	rest, ok := strings.CutPrefix(key[len(line)+1:], d.instance+"-")
	if !ok {
		return 0, false
	}
	slot, err := strconv.Atoi(rest)
	return slot, err == nil && slot >= 0
}

// splitKey takes a key under the driver's prefix apart. It reports false for
// one that is not a ticket's, for example one of a longer prefix.
func (d *Driver) splitKey(key string) (name, line string, ok bool) {
	rest, ok := strings.CutPrefix(key, d.prefix+"/")
	if !ok {
		return "", "", false
	}
	escaped, ticket, ok := strings.Cut(rest, "#")
	if !ok || ticket == "" || !strings.Contains(exclusiveClass+sharedClass, ticket[:1]) {
		return "", "", false
	}
	name, ok = unescape(escaped)
	return name, d.prefix + "/" + escaped + "#", ok
}

// escape writes a name with letters, digits and -_.:~@+=, as they are and all
// other bytes as %XX.
func escape(name string) string {
	plain := true
	for i := 0; i < len(name) && plain; i++ {
		plain = isPlain(name[i])
	}
	if plain {
		return name
	}
	var b strings.Builder
	for i := range len(name) {
		if c := name[i]; isPlain(c) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func isPlain(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		strings.IndexByte("-_.:~@+=,", c) >= 0
}

// unescape undoes escape; it reports false for what escape does not write.
func unescape(s string) (name string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] != '%':
			b.WriteByte(s[i])
		case i+2 < len(s):
			c, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
			if err != nil {
				return "", false
			}
			b.WriteByte(byte(c))
			i += 2
		default:
			return "", false
		}
	}
	name = b.String()
	return name, escape(name) == s
}

// classRange reads one class of a line: no more than limit tickets of it (0:
// all), without their values. The answer counts the whole class.
func classRange(line, class string, limit int64, opts ...clientv3.OpOption) clientv3.Op {
	if limit == shortLine && len(opts) == 0 {
		return clientv3.OpGet(line+class, shortRange...)
	}
	return clientv3.OpGet(line+class, append(opts,
		clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(limit))...)
}

// shortRange is what every ticket that joins reads with.
var shortRange = []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(shortLine)}

// lineOps reads a line, at most limit tickets (0: all) of each class.
func lineOps(line string, limit int64) []clientv3.Op {
	return []clientv3.Op{
		classRange(line, exclusiveClass, limit),
		classRange(line, sharedClass, limit),
	}
}

// standing holds on exactly one ticket that is in line: the key exists since
// the given revision.
func standing(key string, rev int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", rev)
}

// noneSince holds when the line has no ticket of the class that is newer than
// rev: with 0, when it has none at all.
func noneSince(line, class string, rev int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(line+class), "<", rev+1).WithPrefix()
}

// seconds is a lease's length as etcd takes it: whole seconds, rounded up.
func seconds(ttl time.Duration) int64 {
	return int64((min(ttl, longest) + time.Second - 1) / time.Second)
}
