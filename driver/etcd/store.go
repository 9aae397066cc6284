package etcd

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/kvqueue"
	"github.com/lockerproject/locker/driver/internal/protocol"
)

// store is the requests. A session is a lease. A queue that was read at a revision is
// complete up to that number.
type store struct {
	keyspace
	client   *clientv3.Client
	protocol *protocol.Check

	shortest atomic.Int64 // the shortest lease the server is known to give, in seconds
	streams  atomic.Int64 // the number of the stream for new watches

	idle       chan keepAlive  // streams that no request uses
	life       context.Context // of these streams
	end        context.CancelFunc
	reconnects atomic.Int64 // when connections were last made anew at once
}

var _ kvqueue.Store = (*store)(nil)

// If a queue, or a class of it, has more tickets than this, a put returns no snapshot.
const longQueue = 512

// With at most this many tickets ahead, a process watches the whole queue, and reads
// nothing when one of them leaves. Further back it watches only the next ticket ahead, so
// that a release does not notify all processes, however many wait.
const nearHead = 16

// Agree implements kvqueue.Store.
func (s *store) Agree(ctx context.Context, write bool) error {
	return s.protocol.Do(ctx, func(ctx context.Context) (found string, err error) {
		err = s.insist(ctx, func(ctx context.Context) (err error) {
			found, err = s.readVersion(ctx, write)
			return err
		})
		if errors.Is(err, errNoAnswer) {
			err = driver.Unavailable(s.silence()) // it says why
		}
		return found, err
	})
}

// readVersion writes in a transaction that does nothing if another client was faster.
func (s *store) readVersion(ctx context.Context, write bool) (string, error) {
	key := s.keyspace.protocol()
	for {
		resp, err := s.client.Get(ctx, key)
		switch {
		case err != nil:
			return "", err
		case len(resp.Kvs) > 0:
			return string(resp.Kvs[0].Value), nil
		case !write:
			return "", nil
		}
		if _, err := s.client.Txn(ctx).If(createdAt(key, absent)).Then(clientv3.OpPut(key, s.protocol.Own())).Commit(); err != nil {
			return "", err
		}
	}
}

// Class implements kvqueue.Store.
func (s *store) Class(r *driver.Request) (time.Duration, error) {
	return time.Duration(seconds(max(r.TTL, r.MinHold))) * time.Second, nil
}

// Open implements kvqueue.Store.
func (s *store) Open(ctx context.Context, class time.Duration) (kvqueue.Session, error) {
	asked := seconds(class)
	var resp *etcdserverpb.LeaseGrantResponse
	err := s.insist(ctx, func(ctx context.Context) (err error) {
		resp, err = etcdserverpb.NewLeaseClient(s.client.ActiveConnection()).LeaseGrant(ctx, &etcdserverpb.LeaseGrantRequest{TTL: asked})
		return err
	})
	if err != nil {
		return kvqueue.Session{}, err
	}
	if resp.TTL > asked || resp.TTL < s.shortest.Load() { // the server's minimum shows itself
		s.shortest.Store(resp.TTL)
	}
	return kvqueue.Session{ID: sessionOf(clientv3.LeaseID(resp.ID)), TTL: time.Duration(resp.TTL) * time.Second}, nil
}

// End implements kvqueue.Store.
func (s *store) End(ctx context.Context, session string) error {
	_, err := s.client.Revoke(clientv3.WithRequireLeader(ctx), leaseOf(session))
	return outcome(err)
}

// Key implements kvqueue.Store.
func (s *store) Key(name, session string, slot int, shared bool) string {
	return s.ticket(name, session, slot, shared)
}

// Put implements kvqueue.Store.
//
// A transaction can have the condition that a queue is empty, or has no exclusive
// ticket. It cannot have a number of readers as its condition, but it can have that
// there is no new one: so a permit is put on condition that no reader has queued since
// they were counted.
//
// The client repeats a transaction when a server or a proxy answers that its own time is
// over, so it may be executed twice. A second put would change the key's content but not
// its create revision. So it is put on condition that the key is not there. The first may even
// arrive after the release of what the second has put, so a ticket that was sent twice is withdrawn.
func (s *store) Put(ctx context.Context, p *kvqueue.Put) (kvqueue.Placed, error) {
	queue := s.queue(p.Name)
	cmps := []clientv3.Cmp{createdAt(p.Key, absent), createdAt(s.tombstone(&p.Ticket), absent)}
	if since, ok := p.If.(int64); ok {
		cmps = append(cmps, free(queue, p.Request, since)...)
	}
	// The transaction reads the queue before the put, since etcd would read the new
	// key from its database. An exclusive ticket does not distinguish the classes.
	var ops []clientv3.Op
	switch {
	case p.Brief || p.If != nil:
	case p.Shared:
		ops = append(ops, keysBelow(queue+exclusiveClass, longQueue), keysBelow(queue+sharedClass, longQueue))
	default:
		ops = append(ops, keysBelow(queue, longQueue))
	}
	put := clientv3.OpPut(p.Key, encodeRecord(p.Request, time.Now()), clientv3.WithLease(leaseOf(p.Session)))
	ctx, before := mayRepeat(s.refuseIfLeaderless(ctx))
	resp, err := s.client.Txn(ctx).If(cmps...).Then(append(ops, put)...).
		Else(clientv3.OpGet(p.Key, clientv3.WithCountOnly())).Commit()
	switch {
	case err != nil && before.Load():
		return kvqueue.Placed{}, err // whatever it says of the last sending
	case err != nil:
		return kvqueue.Placed{}, outcome(err)
	case before.Load(), !resp.Succeeded && resp.Responses[0].GetResponseRange().Count > 0:
		return kvqueue.Placed{}, kvqueue.ErrOccupied
	case !resp.Succeeded && p.If != nil:
		return kvqueue.Placed{}, kvqueue.ErrChanged
	case !resp.Succeeded:
		return kvqueue.Placed{}, kvqueue.ErrReleased
	}
	placed := kvqueue.Placed{Number: uint64(resp.Header.Revision)}
	placed.Granted = p.If != nil || !p.Brief && granted(p.Request, resp.Responses)
	if len(ops) > 0 && !placed.Granted {
		placed.Queue = s.snapshot(p, queue, resp)
	}
	return placed, nil
}

// snapshot returns the queue that was read with a put, or nil if that is not all of it.
func (s *store) snapshot(p *kvqueue.Put, queue string, resp *clientv3.TxnResponse) *kvqueue.Snapshot {
	q := &kvqueue.Snapshot{Complete: uint64(resp.Header.Revision)}
	for _, r := range resp.Responses[:len(resp.Responses)-1] {
		if r.GetResponseRange().More {
			return nil
		}
		q.Entries = entriesOf(q.Entries, queue, r.GetResponseRange().Kvs)
	}
	own := p.Entry
	own.Number = q.Complete
	q.Entries = append(q.Entries, own)
	return q
}

// granted reports whether a ticket is granted behind the tickets that were counted: all
// tickets or, for a shared one, those of each class.
func granted(r *driver.Request, counted []*etcdserverpb.ResponseOp) bool {
	first := counted[0].GetResponseRange().Count
	return first == 0 && (!r.Shared || r.Limit == 0 || counted[1].GetResponseRange().Count < int64(r.Limit))
}

// free returns the conditions under which a ticket is granted.
func free(queue string, r *driver.Request, since int64) []clientv3.Cmp {
	switch {
	case !r.Shared:
		return []clientv3.Cmp{noneSince(queue, 0)}
	case r.Limit > 0:
		return []clientv3.Cmp{noneSince(queue+exclusiveClass, 0), noneSince(queue+sharedClass, since)}
	}
	return []clientv3.Cmp{noneSince(queue+exclusiveClass, 0)}
}

// Look implements kvqueue.Store. A read adds no entry to the store's log.
func (s *store) Look(ctx context.Context, r *driver.Request) (any, error) {
	queue := s.queue(r.Name)
	ops := []clientv3.Op{keysBelow(queue, 1)}
	if r.Shared {
		ops = []clientv3.Op{keysBelow(queue+exclusiveClass, 1), keysBelow(queue+sharedClass, 1)}
	}
	resp, err := s.client.Txn(s.refuseIfLeaderless(ctx)).Then(ops...).Commit()
	switch {
	case err != nil:
		return nil, err
	case !granted(r, resp.Responses):
		return nil, driver.ErrNotAcquired
	}
	return resp.Header.Revision, nil
}

// Delete implements kvqueue.Store.
func (s *store) Delete(ctx context.Context, t, next *kvqueue.Ticket) (bool, error) {
	ops := []clientv3.Op{clientv3.OpDelete(t.Key)}
	if next != nil {
		ops = append(ops, clientv3.OpGet(next.Key, clientv3.WithKeysOnly()))
	}
	ctx, before := mayRepeat(s.refuseIfLeaderless(ctx))
	resp, err := s.client.Txn(ctx).If(createdAt(t.Key, t.Number)).Then(ops...).Commit()
	switch {
	case err != nil:
		return false, err
	case !resp.Succeeded && !before.Load():
		return false, driver.ErrLost
	case !resp.Succeeded || next == nil:
		return false, nil
	}
	return isThere(next.Entry, resp.Responses[1]), nil
}

// isThere reports whether an entry is there, by what was read of its key.
func isThere(e kvqueue.Entry, read *etcdserverpb.ResponseOp) bool {
	kvs := read.GetResponseRange().Kvs
	return len(kvs) == 1 && uint64(kvs[0].CreateRevision) == e.Number
}

// Withdraw implements kvqueue.Store. The tombstone is on the ticket's lease, without
// which the ticket cannot be put. A server that is full takes no tombstone, but deletes
// the ticket. A late put is not prevented then, so that is still an error.
func (s *store) Withdraw(ctx context.Context, t *kvqueue.Ticket) error {
	ctx, before := mayRepeat(s.refuseIfLeaderless(ctx))
	resp, err := s.client.Txn(ctx).Then(
		clientv3.OpPut(s.tombstone(t), "", clientv3.WithLease(leaseOf(t.Session))), clientv3.OpDelete(t.Key),
	).Commit()
	if errors.Is(err, rpctypes.ErrNoSpace) {
		_, deleted := s.client.Delete(ctx, t.Key)
		return errors.Join(err, deleted)
	}
	if err != nil {
		return outcome(err)
	}
	if resp.Responses[1].GetResponseDeleteRange().Deleted == 0 && !before.Load() {
		return driver.ErrLost
	}
	return nil
}

// Move implements kvqueue.Store.
func (s *store) Move(ctx context.Context, t *kvqueue.Ticket, to string) error {
	put := clientv3.OpPut(t.Key, "", clientv3.WithIgnoreValue(), clientv3.WithLease(leaseOf(to)))
	resp, err := s.client.Txn(clientv3.WithRequireLeader(ctx)).If(createdAt(t.Key, t.Number)).Then(put).Commit()
	switch {
	case err != nil:
		return outcome(err)
	case !resp.Succeeded:
		return driver.ErrLost
	}
	return nil
}

// Read implements kvqueue.Store.
func (s *store) Read(ctx context.Context, name string) (kvqueue.Snapshot, error) {
	queue := s.queue(name)
	resp, err := s.client.Get(clientv3.WithRequireLeader(ctx), queue, clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return kvqueue.Snapshot{}, err
	}
	entries := make([]kvqueue.Entry, 0, len(resp.Kvs))
	return kvqueue.Snapshot{Complete: uint64(resp.Header.Revision), Entries: entriesOf(entries, queue, resp.Kvs)}, nil
}

// missingMost is how many tickets a transaction looks for. It has at most 128 parts, unless
// the server is configured otherwise.
const missingMost = 100

// Missing implements kvqueue.Store.
func (s *store) Missing(ctx context.Context, ts []kvqueue.Ticket) (missing []int, err error) {
	ops := make([]clientv3.Op, len(ts))
	for i, t := range ts {
		ops[i] = clientv3.OpGet(t.Key, clientv3.WithKeysOnly())
	}
	resp, err := s.commit(ctx, nil, ops...)
	if err != nil {
		return nil, err
	}
	for i, t := range ts {
		if !isThere(t.Entry, resp.Responses[i]) {
			missing = append(missing, i)
		}
	}
	return missing, nil
}

// Tickets implements kvqueue.Store.
func (s *store) Tickets(ctx context.Context, name string) ([]kvqueue.Record, error) {
	queue := s.queue(name)
	resp, err := s.client.Get(clientv3.WithRequireLeader(ctx), queue, clientv3.WithPrefix(),
		clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend))
	if err != nil {
		return nil, err
	}
	recs := make([]kvqueue.Record, 0, len(resp.Kvs))
	for _, kv := range resp.Kvs {
		if isTicket(string(kv.Key[len(queue):])) {
			recs = append(recs, decodeTicket(queue, name, kv))
		}
	}
	return recs, s.remaining(ctx, recs)
}

// remaining sets what is left of the leases of holders, in whole seconds, rounded down.
func (s *store) remaining(ctx context.Context, recs []kvqueue.Record) error {
	left := make(map[string]time.Duration) // by session
	for i, granted := range driver.Granted(kvqueue.Shown(recs)) {
		if !granted {
			continue
		}
		r := &recs[i]
		if _, known := left[r.Session]; !known {
			resp, err := s.client.TimeToLive(clientv3.WithRequireLeader(ctx), leaseOf(r.Session))
			if err != nil {
				return err
			}
			left[r.Session] = max(time.Duration(resp.TTL)*time.Second, time.Millisecond) // it is still queued
		}
		r.Shown.Remaining = left[r.Session]
	}
	return nil
}
