package etcd

import (
	"context"
	"errors"
	"slices"
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

	several    atomic.Bool  // the client knows more than one member
	shortest   atomic.Int64 // the shortest lease the server is known to give, in seconds
	streams    atomic.Int64 // counts up when watches need another stream
	reconnects atomic.Int64 // when connections were last made anew at once
}

var _ kvqueue.Store = (*store)(nil)

// If a queue, or a class of it, has more tickets than this, a put returns no snapshot.
const longQueue = 512

// With at most this many tickets ahead, a process watches the whole queue, and reads
// nothing when one of them leaves. Further back it watches only the next ticket ahead, so
// that a release does not notify all processes, however many wait.
const nearFront = 16

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
		if _, err := s.client.Txn(ctx).If(is(key, 0)).Then(clientv3.OpPut(key, s.protocol.Own())).Commit(); err != nil {
			return "", err
		}
	}
}

// Class implements kvqueue.Store.
func (s *store) Class(_ context.Context, r *driver.Request) (time.Duration, error) {
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
	if resp.TTL > asked || resp.TTL < s.shortest.Load() {
		s.shortest.Store(resp.TTL)
	}
	return kvqueue.Session{ID: sessionOf(clientv3.LeaseID(resp.ID)), TTL: time.Duration(resp.TTL) * time.Second}, nil
}

// KeepAlive implements kvqueue.Store. It opens a stream for each request, because the
// client's own stream never says why a request is not answered.
func (s *store) KeepAlive(ctx context.Context, session string) (time.Duration, error) {
	s.several.Store(len(s.client.Endpoints()) > 1) // it may change
	var resp *etcdserverpb.LeaseKeepAliveResponse
	err := s.insist(ctx, func(ctx context.Context) error {
		stream, err := etcdserverpb.NewLeaseClient(s.client.ActiveConnection()).LeaseKeepAlive(ctx)
		if err == nil {
			err = stream.Send(&etcdserverpb.LeaseKeepAliveRequest{ID: int64(leaseOf(session))})
		}
		if err == nil {
			resp, err = stream.Recv()
		}
		return err
	})
	if err == nil && resp.TTL <= 0 {
		err = rpctypes.ErrLeaseNotFound
	}
	if err != nil {
		return 0, outcome(err)
	}
	return time.Duration(resp.TTL) * time.Second, nil
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
// its create revision. So it is put on condition that the key is not there.
func (s *store) Put(ctx context.Context, p *kvqueue.Put) (kvqueue.Placed, error) {
	queue := s.queue(p.Name)
	cmps := []clientv3.Cmp{is(p.Key, 0), is(s.tombstone(&p.Ticket), 0)}
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
	resp, err := s.client.Txn(s.asking(ctx)).If(cmps...).Then(append(ops, put)...).
		Else(clientv3.OpGet(p.Key, clientv3.WithCountOnly())).Commit()
	switch {
	case err != nil:
		return kvqueue.Placed{}, outcome(err)
	case !resp.Succeeded && resp.Responses[0].GetResponseRange().Count > 0:
		return kvqueue.Placed{}, kvqueue.ErrOccupied
	case !resp.Succeeded && p.If != nil:
		return kvqueue.Placed{}, kvqueue.ErrChanged
	case !resp.Succeeded:
		return kvqueue.Placed{}, kvqueue.Refused(errWithdrawn)
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
	resp, err := s.client.Txn(s.asking(ctx)).Then(ops...).Commit()
	switch {
	case err != nil:
		return nil, err
	case !granted(r, resp.Responses):
		return nil, driver.ErrNotAcquired
	}
	return resp.Header.Revision, nil
}

// Delete implements kvqueue.Store.
func (s *store) Delete(ctx context.Context, t *kvqueue.Ticket) error {
	resp, err := s.client.Txn(s.asking(ctx)).If(is(t.Key, t.Number)).Then(clientv3.OpDelete(t.Key)).Commit()
	if err == nil && !resp.Succeeded {
		return driver.ErrLost
	}
	return err
}

// Withdraw implements kvqueue.Store. The tombstone is on the ticket's lease, without
// which the ticket cannot be put. A server that is full takes no tombstone, but deletes
// the ticket. A late put is not prevented then, so that is still an error.
func (s *store) Withdraw(ctx context.Context, t *kvqueue.Ticket) error {
	resp, err := s.client.Txn(s.asking(ctx)).Then(
		clientv3.OpPut(s.tombstone(t), "", clientv3.WithLease(leaseOf(t.Session))), clientv3.OpDelete(t.Key),
	).Commit()
	if errors.Is(err, rpctypes.ErrNoSpace) {
		_, deleted := s.client.Delete(s.asking(ctx), t.Key)
		return errors.Join(err, deleted)
	}
	if err != nil {
		return outcome(err)
	}
	if resp.Responses[1].GetResponseDeleteRange().Deleted == 0 {
		return driver.ErrLost
	}
	return nil
}

// Move implements kvqueue.Store. A request that arrives late must not undo a later
// move.
func (s *store) Move(ctx context.Context, t *kvqueue.Ticket, to string) error {
	from := clientv3.Compare(clientv3.LeaseValue(t.Key), "=", leaseOf(t.Session))
	put := clientv3.OpPut(t.Key, "", clientv3.WithIgnoreValue(), clientv3.WithLease(leaseOf(to)))
	resp, err := s.client.Txn(clientv3.WithRequireLeader(ctx)).If(is(t.Key, t.Number), from).
		Then(put).Else(clientv3.OpGet(t.Key, clientv3.WithKeysOnly())).Commit()
	if err != nil || resp.Succeeded {
		return outcome(err)
	}
	kvs := resp.Responses[0].GetResponseRange().Kvs
	if len(kvs) == 1 && uint64(kvs[0].CreateRevision) == t.Number && clientv3.LeaseID(kvs[0].Lease) == leaseOf(to) {
		return nil // by an earlier request
	}
	return driver.ErrLost
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

// manyTickets is the number above which it is cheaper to ask for all keys of a lease
// than for some of them. A transaction has at most 128 parts.
const manyTickets = 100

// Missing implements kvqueue.Store. The list of a lease's keys may come from a member
// that was deposed and has not noticed. So the keys that it lacks are read again, by a
// linearizable read.
func (s *store) Missing(ctx context.Context, session string, ts []kvqueue.Ticket) ([]int, error) {
	asked := make([]int, 0, len(ts))
	there := make(map[string]bool)
	if len(ts) > manyTickets {
		resp, err := s.client.TimeToLive(clientv3.WithRequireLeader(ctx), leaseOf(session), clientv3.WithAttachedKeys())
		if err != nil {
			return nil, err
		}
		for _, key := range resp.Keys {
			there[string(key)] = true // the ticket's: a key is used again only after its ticket's end
		}
	}
	for i, t := range ts {
		if !there[t.Key] {
			asked = append(asked, i)
		}
	}
	var missing []int
	for some := range slices.Chunk(asked, manyTickets) {
		ops := make([]clientv3.Op, len(some))
		for n, i := range some {
			ops[n] = clientv3.OpGet(ts[i].Key, clientv3.WithKeysOnly())
		}
		resp, err := s.commit(ctx, nil, ops...)
		if err != nil {
			return nil, err
		}
		for n, i := range some {
			kvs := resp.Responses[n].GetResponseRange().Kvs
			if len(kvs) == 0 || uint64(kvs[0].CreateRevision) != ts[i].Number {
				missing = append(missing, i)
			}
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
	return recs, nil
}

// Remaining implements kvqueue.Store, in whole seconds, rounded down.
func (s *store) Remaining(ctx context.Context, rs []*kvqueue.Record) error {
	left := make(map[string]time.Duration)
	for _, r := range rs {
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
