package zookeeper

import (
	"context"
	"errors"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
)

// createTicket creates the node of a ticket. It also creates the parent (fresh), or the
// parent must be there. It sets the parent's data in the same transaction. That costs no
// request, and the answer has what a create does not return: the transaction's number,
// which is the czxid of the new node, and how many children the parent has.
//
// With seen the ticket is created only if no ticket was queued or has left since the
// queue was seen like that, other than by the end of a session or by hand:
//
//   - An empty parent is replaced, which fails if it is not empty.
//   - Creating and deleting a ticket set the parent's data, so each makes a new
//     version. The versions begin again when the parent is deleted. It was not deleted
//     as long as a child that was seen is there.
//
// The error is then ErrNotEmpty, ErrBadVersion or ErrNoNode. Otherwise it is
// ErrNodeExists if a fresh parent is there, and ErrNoNode if the base is not there, or a
// parent that is not fresh.
//
// It notes the request in Driver.creates: see there.
func (d *Driver) createTicket(
	ctx context.Context, parent string, r driver.Request, data []byte, fresh bool, seen *view,
) (created, error) {
	ops := make([]any, 0, 4)
	version := int32(-1)
	if !fresh && seen != nil {
		if seen.witness == "" {
			ops = append(ops, &zk.DeleteRequest{Path: parent, Version: -1})
			fresh = true
		} else {
			ops = append(ops, &zk.CheckVersionRequest{Path: parent + "/" + seen.witness, Version: -1})
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
	ended := make(chan struct{})
	d.mu.Lock()
	d.creates[r.ID] = ended
	d.mu.Unlock()
	res, err := d.conn.MultiUntil(ctx, func() { close(ended) }, ops...)
	if err != nil {
		return created{}, err
	}
	st := res[len(res)-1].Stat
	return created{path: res[len(res)-2].String, czxid: st.Mzxid, children: int(st.NumChildren)}, nil
}

// created is what createTicket returns.
type created struct {
	path     string
	czxid    int64
	children int // of the parent, including the ticket
}

// deleteTicket deletes the node of a ticket, and returns how many children its parent
// has left.
//
// With heldAlone the ticket held the lock alone. Then the same transaction changes its
// data first, so the watch of the next waiter fires for that and not for the deletion.
// That shows, without a request, that all tickets ahead have gone. No ticket can get
// ahead of a holder, so this is true however late the request arrives.
func (d *Driver) deleteTicket(ctx context.Context, path string, heldAlone bool) (left int, err error) {
	ops := make([]any, 0, 3)
	if heldAlone {
		ops = append(ops, &zk.SetDataRequest{Path: path, Data: []byte{}, Version: -1})
	}
	ops = append(ops,
		&zk.DeleteRequest{Path: path, Version: -1},
		&zk.SetDataRequest{Path: parentOf(path), Data: []byte{}, Version: -1})
	res, err := d.conn.Multi(ctx, ops...)
	if err != nil {
		return 0, err
	}
	return int(res[len(res)-1].Stat.NumChildren), nil
}

// deleteLast deletes the node of a ticket and its parent. ErrNotEmpty says that there
// are other tickets, and that nothing was done.
func (d *Driver) deleteLast(ctx context.Context, path string) error {
	_, err := d.conn.Multi(ctx, &zk.DeleteRequest{Path: path, Version: -1}, &zk.DeleteRequest{Path: parentOf(path), Version: -1})
	return err
}

// tryRights does to a node that nobody sees what is done to the node of a name. The
// encoding of a name is never equal to it, see encode.
func (d *Driver) tryRights(ctx context.Context) error {
	path := d.base + "/%ping"
	_, err := d.conn.Multi(ctx,
		&zk.CreateRequest{Path: path, Data: []byte{}, Acl: d.acl},
		&zk.SetDataRequest{Path: path, Data: []byte{}, Version: -1},
		&zk.DeleteRequest{Path: path, Version: -1})
	return err
}

func (d *Driver) readVersion(ctx context.Context, write bool) (string, error) {
	path := d.base + "/" + protocolNode
	for {
		found, _, err := d.conn.Get(ctx, path)
		switch {
		case err == nil:
			return string(found), nil
		case !errors.Is(err, zk.ErrNoNode):
			return "", err
		case !write:
			return "", nil
		}
		_, err = d.conn.Multi(ctx, &zk.CreateRequest{Path: path, Data: []byte(d.protocol.Own()), Acl: d.acl})
		if errors.Is(err, zk.ErrNoNode) {
			err = d.conn.CreatePath(ctx, d.base, d.acl)
		}
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return "", err
		}
	}
}
