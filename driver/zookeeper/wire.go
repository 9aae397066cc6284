package zookeeper

import (
	"encoding/json"
	"math"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
)

// What the store holds, below the base (chroot and prefix):
//
//	<base>/<name>/<id>_<mode>_<sequence>
//
// A name's node is persistent, and there while it has tickets. Its children are the
// queue: ephemeral sequential nodes whose names hold all that the evaluation of the
// queue needs, so that one listing is enough. The mode is x for an exclusive ticket, s
// for a shared one, and s5 for a shared one with limit 5. The data are a record, for
// Inspect.

// version is the version of this format. All programs that use the same locks must have
// the same one. It goes up with each change after which older and newer programs would
// not exclude each other.
const version = "1"

// protocolNode is the node below the base with the version in use. The encoding of a name
// is never equal to it, see encode.
const protocolNode = "%protocol"

// encode makes the name of a node of a lock name, one to one. It escapes as
// url.PathEscape does, except that it leaves a comma as it is, and escapes $, & and a
// first dot. So there is no slash, no NUL, no rune that ZooKeeper refuses, and neither
// "." nor "..".
func encode(name string) string {
	node := unlikeURL.Replace(url.PathEscape(name))
	if node[0] == '.' {
		return "%2E" + node[1:]
	}
	return node
}

var unlikeURL = strings.NewReplacer("%2C", ",", "$", "%24", "&", "%26")

// decode is the inverse of encode. It reports false for what encode does not make.
func decode(node string) (name string, ok bool) {
	name, err := url.PathUnescape(node)
	return name, err == nil && name != "" && encode(name) == node
}

// mode is the middle part of a ticket's node name.
func mode(shared bool, limit int) string {
	switch {
	case !shared:
		return "x"
	case limit == 0:
		return "s"
	default:
		return "s" + strconv.Itoa(limit)
	}
}

// entry is a ticket as a listing shows it.
type entry struct {
	node   string // the last part of the path
	id     string
	shared bool
	limit  int
	seq    int32
	czxid  int64 // 0 if the sequence orders the entry
}

// parseEntry parses the name of a ticket's node. It reports false for a foreign node. The
// sequence has ten digits, with a sign if it has overflowed.
func parseEntry(node string) (entry, bool) {
	id, rest, ok1 := strings.Cut(node, "_")
	m, digits, ok2 := strings.Cut(rest, "_")
	seq, err := strconv.ParseInt(digits, 10, 32)
	if !ok1 || !ok2 || err != nil || id == "" || m == "" {
		return entry{}, false
	}
	e := entry{node: node, id: id, seq: int32(seq)}
	switch {
	case m == "x":
	case m == "s":
		e.shared = true
	case m[0] == 's':
		e.shared = true
		if e.limit, err = strconv.Atoi(m[1:]); err != nil || e.limit < 1 {
			return entry{}, false
		}
	default:
		return entry{}, false
	}
	return e, true
}

// record is the data of a ticket's node.
type record struct {
	Owner string `json:"owner,omitempty"`
	Note  string `json:"note,omitempty"`
	Lease int64  `json:"lease"` // milliseconds: how long, at least, the ticket outlives its holder's last heartbeat
	Fixed int64  `json:"fixed,omitempty"`
}

// mostMillis is the longest time.Duration, in milliseconds.
const mostMillis = math.MaxInt64 / int64(time.Millisecond)

func newRecord(r driver.Request, lease time.Duration) []byte {
	rec := record{Owner: r.Owner, Note: r.Note, Lease: lease.Milliseconds()}
	if !r.Renewed {
		rec.Fixed = r.TTL.Milliseconds()
	}
	b, err := json.Marshal(rec)
	if err != nil {
		panic(err) // strings and numbers always marshal
	}
	return b
}

// parseRecord decodes a record, which another process may have written. It leaves out
// what it cannot decode.
func parseRecord(data []byte) record {
	var rec record
	_ = json.Unmarshal(data, &rec)
	return rec
}

func parentOf(path string) string { return path[:strings.LastIndexByte(path, '/')] }
func nodeOf(path string) string   { return path[strings.LastIndexByte(path, '/')+1:] }

// parent returns the path of a name's node.
func (d *Driver) parent(name string) string { return d.base + "/" + encode(name) }
