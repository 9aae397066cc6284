package zookeeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
)

// What the store holds, below the base (chroot and prefix):
//
//	<base>/<name>/<id>_<mode>_<sequence>
//
// A name's node is there while it has tickets, and is persistent. Its children
// are the line: ephemeral sequential nodes whose names tell all that the
// evaluation of the line needs, so that one listing is enough. The mode is x
// for an exclusive ticket, s for a shared one, and s5 for a shared one with
// limit 5. The data are a record, for Inspect.

const upperhex = "0123456789ABCDEF"

// encode makes a znode name of a lock name, one to one: bytes that are not
// unreserved stand as %XX, as does a first dot. So there is no slash, no NUL,
// no rune that ZooKeeper refuses, and neither "." nor "..".
func encode(name string) string {
	n := 0
	for i := range len(name) {
		if !unreserved(name, i) {
			n++
		}
	}
	if n == 0 {
		return name
	}
	b := make([]byte, 0, len(name)+2*n)
	for i := range len(name) {
		c := name[i]
		if unreserved(name, i) {
			b = append(b, c)
		} else {
			b = append(b, '%', upperhex[c>>4], upperhex[c&15])
		}
	}
	return string(b)
}

func unreserved(name string, i int) bool {
	c := name[i]
	switch {
	case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		return true
	case c == '.':
		return i > 0
	default:
		return strings.IndexByte("-_:@+=,~", c) >= 0
	}
}

// decode is the inverse of encode; false for what encode does not make.
func decode(s string) (string, bool) {
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b = append(b, s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		c, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", false
		}
		b = append(b, byte(c))
		i += 2
	}
	name := string(b)
	return name, name != "" && encode(name) == s
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
	czxid  int64 // 0: not asked for
}

// parseEntry reads the name of a ticket's node; false for what is none. The
// sequence has ten digits, and a sign after it has overflowed.
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
	Lease int64  `json:"lease"` // milliseconds: how long, at least, the ticket outlives its holder's last sign of life
	Fixed int64  `json:"fixed,omitempty"`
}

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

// parseRecord reads what another process may have written: what cannot be read
// is left out.
func parseRecord(data []byte) record {
	var rec record
	_ = json.Unmarshal(data, &rec)
	return rec
}

// parent is the node of a name.
func (d *Driver) parent(name string) string { return d.base + "/" + encode(name) }

// takeTicket creates the node of a ticket, below a parent that it creates too
// (fresh) or that has to be there. Setting the parent's data in the same
// transaction costs no request and answers the two questions that a create
// leaves open: the transaction's number, which is the czxid of the new node,
// and how many children the parent has.
//
// With seen the ticket is created only if nobody has joined or left since the
// queue was seen like that, other than by the end of a session or by hand:
//
//   - An empty parent is replaced, which fails if it is not empty.
//   - Joining and leaving set the parent's data, so that each makes a new
//     version. The versions begin again when the parent is deleted, which it was
//     not as long as one of the tickets seen is there.
//
// The error is then ErrNotEmpty, ErrBadVersion or ErrNoNode. Otherwise it is
// ErrNodeExists for a fresh parent that is there, ErrNoNode for one whose base is
// not, and ErrNoNode for a parent that is not fresh and not there.
func (d *Driver) takeTicket(parent string, r driver.Request, data []byte, fresh bool, seen *view) (taken, error) {
	ops := make([]any, 0, 4)
	version := int32(-1)
	if !fresh && seen != nil {
		if len(seen.entries) == 0 {
			ops = append(ops, &zk.DeleteRequest{Path: parent, Version: -1})
			fresh = true
		} else {
			ops = append(ops, &zk.CheckVersionRequest{Path: parent + "/" + seen.entries[0].node, Version: -1})
			version = seen.version
		}
	}
	if fresh {
		ops = append(ops, &zk.CreateRequest{Path: parent, Data: []byte{}, Acl: d.acl})
	}
	ops = append(ops,
		&zk.CreateRequest{
			Path: parent + "/" + r.ID + "_" + mode(r.Shared, r.Limit) + "_", Data: data, Acl: d.acl,
			Flags: zk.FlagEphemeralSequential,
		},
		&zk.SetDataRequest{Path: parent, Data: []byte{}, Version: version})
	res, err := d.conn.Multi(ops...)
	if err != nil {
		return taken{}, err
	}
	if len(res) != len(ops) || res[len(res)-1].Stat == nil {
		return taken{}, errIncomplete
	}
	st := res[len(res)-1].Stat
	return taken{path: res[len(res)-2].String, czxid: st.Mzxid, children: int(st.NumChildren)}, nil
}

// taken is what takeTicket learns.
type taken struct {
	path     string
	czxid    int64
	children int // of the parent, the ticket among them
}

// How the node of a ticket is deleted.
const (
	// plain: the ticket waited, or it is not known whether it did.
	plain = iota
	// passing: the ticket held the lock alone. Its data are changed in the same
	// transaction, so that the watch of the next one fires with that and not
	// with the deletion: it tells, without a request, that all that were ahead
	// have gone. A holder's place is never behind another's, so that this
	// remains true however late the request arrives.
	passing
)

// dropTicket deletes the node of a ticket and counts the children that its
// parent has left.
func (d *Driver) dropTicket(path string, how int) (left int, err error) {
	ops := make([]any, 0, 3)
	if how == passing {
		ops = append(ops, &zk.SetDataRequest{Path: path, Data: []byte{}, Version: -1})
	}
	ops = append(ops,
		&zk.DeleteRequest{Path: path, Version: -1},
		&zk.SetDataRequest{Path: parentOf(path), Data: []byte{}, Version: -1})
	res, err := d.conn.Multi(ops...)
	if err != nil {
		return 0, err
	}
	if len(res) != len(ops) || res[len(res)-1].Stat == nil {
		return 0, errIncomplete
	}
	return int(res[len(res)-1].Stat.NumChildren), nil
}

// dropLast deletes the node of a ticket and its parent. ErrNotEmpty says that
// there are others, and that nothing was done.
func (d *Driver) dropLast(path string) error {
	_, err := d.conn.Multi(&zk.DeleteRequest{Path: path, Version: -1}, &zk.DeleteRequest{Path: parentOf(path), Version: -1})
	return err
}

var errIncomplete = errors.New("the server's answer to a transaction is incomplete")

// showAlive is a request that a majority has to confirm. A read, or a sync,
// would not do: a server that is cut off from the others answers those for a
// while, when the session may have ended already.
func (d *Driver) showAlive() error {
	_, err := d.conn.Multi(&zk.CheckVersionRequest{Path: d.base, Version: -1})
	return err
}

// tryRights does to a node that nobody sees what is done to the node of a name.
// No name is encoded like it, see encode.
func (d *Driver) tryRights() error {
	path := d.base + "/%ping"
	_, err := d.conn.Multi(
		&zk.CreateRequest{Path: path, Data: []byte{}, Acl: d.acl},
		&zk.SetDataRequest{Path: path, Data: []byte{}, Version: -1},
		&zk.DeleteRequest{Path: path, Version: -1})
	return err
}

// createPath creates a persistent node and what is missing above it.
func (d *Driver) createPath(path string) error {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		exists, _, err := d.conn.Exists(path[:i])
		if err != nil && !errors.Is(err, zk.ErrNoAuth) {
			return err
		}
		if exists {
			continue
		}
		if _, err := d.conn.Create(path[:i], []byte{}, 0, d.acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return fmt.Errorf("create %s: %w", path[:i], err)
		}
	}
	return nil
}
