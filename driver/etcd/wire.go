package etcd

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/kvqueue"
)

// version is the version of the stored data. All programs that use the same locks must
// have the same one. It goes up with each change after which older and newer programs
// would not exclude each other.
const version = "1"

// A ticket is one key:
//
//	<prefix>/<name>#<class><session>-<slot>
//
// The escaped name has neither # nor /, and a prefix has no #. So no queue lies inside
// another one, and no key of another name, or of a longer prefix, lies in a queue. The
// class is x for an exclusive ticket and s for a shared one: a reader needs to know only
// whether there is any x, and how many s there are, not the tickets.
//
// Session, which is a lease in hexadecimal, and slot make the key unique among the live
// tickets. Later tickets use them again: etcd keeps every key that it has ever seen in
// memory until it is compacted, and walks over the deleted ones when it reads a range.
// With a key of its own for each ticket, a queue would be slower with every lock that
// was ever taken.
//
// The key's create revision is the ticket's number. etcd's revisions only grow.
//
// Other keys, which name no ticket:
//
//	<prefix>/#protocol                  the version, which stays
//	<prefix>/#tombstone/<session>-<ID>  a ticket that was withdrawn; ends with the session
//	<prefix>/#notice/<session>          deleted when a ticket of the session is broken
//	<prefix>/#ping                      never there
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
	Since int64  `json:"since,omitempty"` // of queueing, in ms since 1970, by the client's clock
}

func encodeRecord(r *driver.Request, now time.Time) string {
	b, err := json.Marshal(record{ID: r.ID, Owner: r.Owner, Note: r.Note, Limit: r.Limit, Since: now.UnixMilli()})
	if err != nil { // strings and integers always marshal
		panic(fmt.Sprintf("etcd: encode record: %v", err))
	}
	return string(b)
}

// decodeTicket decodes a ticket of a queue. A ticket whose value cannot be decoded is
// queued all the same.
func decodeTicket(queue, name string, kv *mvccpb.KeyValue) kvqueue.Record {
	var r record
	_ = json.Unmarshal(kv.Value, &r)
	e := entryOf(queue, kv)
	rec := kvqueue.Record{
		Ticket: kvqueue.Ticket{Entry: e, Name: name, ID: r.ID, Session: sessionOf(clientv3.LeaseID(kv.Lease))},
		Shown:  driver.Ticket{ID: r.ID, Token: e.Number, Owner: r.Owner, Note: r.Note, Shared: e.Shared, Limit: r.Limit},
	}
	if r.Since > 0 {
		rec.Shown.Since = time.UnixMilli(r.Since)
	}
	return rec
}

func entryOf(queue string, kv *mvccpb.KeyValue) kvqueue.Entry {
	key := string(kv.Key)
	return kvqueue.Entry{Key: key, Number: uint64(kv.CreateRevision), Shared: strings.HasPrefix(key[len(queue):], sharedClass)}
}

// entriesOf appends the tickets among the keys of a queue to entries.
func entriesOf(entries []kvqueue.Entry, queue string, kvs []*mvccpb.KeyValue) []kvqueue.Entry {
	for _, kv := range kvs {
		if isTicket(string(kv.Key[len(queue):])) {
			entries = append(entries, entryOf(queue, kv))
		}
	}
	return entries
}

// isTicket reports whether what follows the # of a key is that of a ticket.
func isTicket(rest string) bool {
	return strings.HasPrefix(rest, exclusiveClass) || strings.HasPrefix(rest, sharedClass)
}

// keyspace makes the keys.
type keyspace struct{ prefix string }

// queue returns the beginning of the keys of a name's tickets.
func (k keyspace) queue(name string) string { return k.prefix + "/" + escape(name) + "#" }

func (k keyspace) ticket(name, session string, slot int, shared bool) string {
	class := exclusiveClass
	if shared {
		class = sharedClass
	}
	return k.queue(name) + class + session + "-" + strconv.Itoa(slot)
}

func (k keyspace) protocol() string             { return k.prefix + "/#protocol" }
func (k keyspace) ping() string                 { return k.prefix + "/#ping" }
func (k keyspace) notice(session string) string { return k.prefix + "/#notice/" + session }
func (k keyspace) tombstone(t *kvqueue.Ticket) string {
	return k.prefix + "/#tombstone/" + t.Session + "-" + t.ID
}

// nameOf takes the name out of a ticket's key. It reports false for a key that is not
// a ticket's, for example one of a longer prefix.
func (k keyspace) nameOf(key string) (string, bool) {
	rest, ok := strings.CutPrefix(key, k.prefix+"/")
	if !ok {
		return "", false
	}
	escaped, rest, ok := strings.Cut(rest, "#")
	if !ok || !isTicket(rest) {
		return "", false
	}
	return unescape(escaped)
}

// A session is a lease.
func sessionOf(id clientv3.LeaseID) string { return strconv.FormatInt(int64(id), 16) }

func leaseOf(session string) clientv3.LeaseID {
	id, _ := strconv.ParseInt(session, 16, 64) // it comes from sessionOf
	return clientv3.LeaseID(id)
}

// seconds returns a lease's length for etcd: whole seconds, rounded up.
func seconds(ttl time.Duration) int64 {
	return int64((min(ttl, longest) + time.Second - 1) / time.Second)
}

// keysBelow reads the keys below a prefix: no more than limit (0 means all), without
// their values. The answer counts all keys.
func keysBelow(prefix string, limit int64) clientv3.Op {
	return clientv3.OpGet(prefix, clientv3.WithPrefix(), clientv3.WithKeysOnly(), clientv3.WithLimit(limit))
}

// absent is the create revision of a key that does not exist.
const absent = 0

// createdAt is the condition that a key was created at a revision, so that it is that
// ticket's, or is absent.
func createdAt(key string, number uint64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(key), "=", int64(number))
}

// onLease is the condition that a key is on a lease.
func onLease(key string, lease clientv3.LeaseID) clientv3.Cmp {
	return clientv3.Compare(clientv3.LeaseValue(key), "=", lease)
}

// noneSince is the condition that no key with the prefix is newer than a revision; with
// 0, that there is no such key.
func noneSince(prefix string, revision int64) clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(prefix), "<", revision+1).WithPrefix()
}

// escape leaves letters, digits and -_.:~@+=, of a name as they are, and writes all
// other bytes as %XX.
func escape(name string) string { return otherwise.Replace(url.PathEscape(name)) }

// otherwise has the bytes that url.PathEscape treats in another way.
var otherwise = strings.NewReplacer("$", "%24", "&", "%26", "%2C", ",")

// unescape undoes escape; it reports false for what escape does not write of a name.
func unescape(s string) (name string, ok bool) {
	name, err := url.PathUnescape(s)
	return name, err == nil && name != "" && escape(name) == s
}
