package zookeeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/url"
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
// A name's node is persistent, and there while it has tickets. Its children are the
// queue: ephemeral sequential nodes whose names hold all that the evaluation of the
// queue needs, so that one listing is enough. The mode is x for an exclusive ticket, s
// for a shared one, and s5 for a shared one with limit 5. The data are a record, for
// Inspect.

// version is that of this format, which all who use the same locks have to share. It
// goes up with each change after which older programs and newer ones would not exclude
// each other.
const version = "1"

// protocolNode is the node below the base that says which version is in use. No name is
// encoded like it, see encode.
const protocolNode = "%protocol"

// encode makes the name of a node of a lock name, one to one: it is escaped as in a URL,
// but for a comma, $ and &; and with a first dot escaped, too. So there is no slash, no
// NUL, no rune that ZooKeeper refuses, and neither "." nor "..".
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
}

// Sequences order a queue up to this one. The server's counter has 31 bits: what it does
// beyond depends on its version (it becomes negative, or does not change), so that
// tickets beyond are ordered by their czxid.
const lastSequence = math.MaxInt32 - 1<<20

// byCreation is added to numbers that are a czxid: they are larger than all sequences.
const byCreation = 1 << 62

// sequential reports whether the sequence orders the entry.
func (e entry) sequential() bool { return e.seq >= 0 && e.seq <= lastSequence }

// number is the number of an entry in its queue. The czxid counts only if the sequence
// does not order it.
func (e entry) number(czxid int64) uint64 {
	if e.sequential() {
		return uint64(e.seq) + 1
	}
	return byCreation | uint64(czxid)
}

// parseEntry reads the name of a ticket's node. It reports false for a foreign node. The
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
	Lease int64  `json:"lease"` // milliseconds: how long, at least, the ticket outlives its holder's last heartbeat
	Fixed int64  `json:"fixed,omitempty"`
}

func newRecord(r *driver.Request, lease time.Duration) []byte {
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

// parseRecord reads what another process may have written. What cannot be read is left
// out.
func parseRecord(data []byte) record {
	var rec record
	_ = json.Unmarshal(data, &rec)
	return rec
}

// remaining is how long, at least, the ticket outlives its holder's last heartbeat.
func (r record) remaining() time.Duration {
	lease := r.Lease
	if r.Fixed > 0 {
		lease = min(lease, r.Fixed)
	}
	return time.Duration(lease) * time.Millisecond
}

func parentOf(path string) string { return path[:strings.LastIndexByte(path, '/')] }

// idOf returns the ID of the ticket whose node has that path.
func idOf(path string) string {
	id, _, _ := strings.Cut(nodeOf(path), "_")
	return id
}

func nodeOf(path string) string { return path[strings.LastIndexByte(path, '/')+1:] }

// parent is the node of a name.
func (s *store) parent(name string) string { return s.base + "/" + encode(name) }

// createTicket creates the node of a ticket, below a parent that it creates too (fresh)
// or that has to be there. Setting the parent's data in the same transaction costs no
// request and answers the two questions that a create leaves open: the transaction's
// number, which is the czxid of the new node, and how many children the parent has.
//
// With seen the ticket is created only if no ticket was queued or has left since the
// queue was seen like that, other than by the end of a session or by hand:
//
//   - An empty parent is replaced, which fails if it is not empty.
//   - Creating and deleting a ticket set the parent's data, so that each makes a new
//     version. The versions begin again when the parent is deleted, which it was
//     not as long as one of the tickets seen is there.
//
// The error is then ErrNotEmpty, ErrBadVersion or ErrNoNode. Otherwise it is
// ErrNodeExists for a fresh parent that is there, ErrNoNode for one whose base is not,
// and ErrNoNode for a parent that is not fresh and not there.
func (s *store) createTicket(parent string, r *driver.Request, data []byte, fresh bool, seen *view) (created, error) {
	ops := make([]any, 0, 4)
	version := int32(-1)
	if seen != nil && seen.stat != nil {
		if len(seen.Entries) == 0 {
			ops = append(ops, &zk.DeleteRequest{Path: parent, Version: -1})
			fresh = true
		} else {
			ops = append(ops, &zk.CheckVersionRequest{Path: seen.Entries[0].Key, Version: -1})
			version = seen.stat.Version
		}
	}
	if fresh {
		ops = append(ops, &zk.CreateRequest{Path: parent, Data: []byte{}, Acl: s.acl})
	}
	ops = append(ops,
		&zk.CreateRequest{
			Path: parent + "/" + r.ID + "_" + mode(r.Shared, r.Limit) + "_", Data: data, Acl: s.acl,
			Flags: zk.FlagEphemeralSequential,
		},
		&zk.SetDataRequest{Path: parent, Data: []byte{}, Version: version})
	res, err := s.conn.Multi(ops...)
	if err != nil {
		return created{}, err
	}
	if len(res) != len(ops) || res[len(res)-1].Stat == nil {
		return created{}, errIncomplete
	}
	st := res[len(res)-1].Stat
	return created{path: res[len(res)-2].String, czxid: st.Mzxid, era: st.Czxid, children: int(st.NumChildren)}, nil
}

// created is what createTicket returns.
type created struct {
	path     string
	czxid    int64
	era      int64 // the parent's czxid
	children int   // of the parent, the ticket among them
}

var errIncomplete = errors.New("the server's answer to a transaction is incomplete")

// deleteTicket deletes the node of a ticket and counts the children that its parent has
// left. With alone, of a ticket that holds the lock alone, it writes the node first, so
// that who watches it learns that nobody is ahead of it: see Watch.
func (s *store) deleteTicket(path string, alone bool) (left int, err error) {
	ops := make([]any, 0, 3)
	if alone {
		ops = append(ops, &zk.SetDataRequest{Path: path, Data: []byte{}, Version: -1})
	}
	ops = append(ops,
		&zk.DeleteRequest{Path: path, Version: -1},
		&zk.SetDataRequest{Path: parentOf(path), Data: []byte{}, Version: -1})
	res, err := s.conn.Multi(ops...)
	if err != nil {
		return 0, err
	}
	if len(res) != len(ops) || res[len(res)-1].Stat == nil {
		return 0, errIncomplete
	}
	return int(res[len(res)-1].Stat.NumChildren), nil
}

// deleteLast deletes the node of a ticket and its parent. ErrNotEmpty says that there
// are other tickets, and that nothing was done.
func (s *store) deleteLast(path string) error {
	_, err := s.conn.Multi(&zk.DeleteRequest{Path: path, Version: -1}, &zk.DeleteRequest{Path: parentOf(path), Version: -1})
	return err
}

// checkBase is a request that a majority has to confirm. A read, or a sync, would not
// do: a server that is cut off from the others answers those for a while, when the
// session may have ended already.
func (s *store) checkBase() error {
	_, err := s.conn.Multi(&zk.CheckVersionRequest{Path: s.base, Version: -1})
	return err
}

// tryRights does to a node that nobody sees what is done to the node of a name. No name
// is encoded like it, see encode.
func (s *store) tryRights() error {
	path := s.base + "/%ping"
	_, err := s.conn.Multi(
		&zk.CreateRequest{Path: path, Data: []byte{}, Acl: s.acl},
		&zk.SetDataRequest{Path: path, Data: []byte{}, Version: -1},
		&zk.DeleteRequest{Path: path, Version: -1})
	return err
}

// createPath creates a persistent node and what is missing above it.
func (s *store) createPath(path string) error {
	for i := 1; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		exists, _, err := s.conn.Exists(path[:i])
		if err != nil && !errors.Is(err, zk.ErrNoAuth) {
			return err
		}
		if exists {
			continue
		}
		if _, err := s.conn.Create(path[:i], []byte{}, 0, s.acl); err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return fmt.Errorf("create %s: %w", path[:i], err)
		}
	}
	return nil
}

func (s *store) readVersion(write bool) (string, error) {
	path := s.base + "/" + protocolNode
	for {
		found, _, err := s.conn.Get(path)
		switch {
		case err == nil:
			return string(found), nil
		case !errors.Is(err, zk.ErrNoNode):
			return "", err
		case !write:
			return "", nil
		}
		_, err = s.conn.Create(path, []byte(s.protocol.Own()), 0, s.acl)
		if errors.Is(err, zk.ErrNoNode) {
			err = s.createPath(s.base)
		}
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return "", err
		}
	}
}
