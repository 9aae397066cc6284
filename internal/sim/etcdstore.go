package sim

import (
	"maps"
	"slices"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// revisions are the keys of a model of etcd, and what has changed them: server/storage/mvcc
// and server/etcdserver/txn of etcd. A key-value pair is never changed, but replaced.
type revisions struct {
	revision  int64
	compacted int64 // what has happened up to this revision may be forgotten
	keys      map[string]*mvccpb.KeyValue
	history   []*mvccpb.Event
}

func newRevisions() *revisions {
	return &revisions{revision: 1, keys: make(map[string]*mvccpb.KeyValue)}
}

func (d *revisions) header() *etcdserverpb.ResponseHeader {
	return &etcdserverpb.ResponseHeader{ClusterId: 1, MemberId: 1, RaftTerm: 1, Revision: d.revision}
}

// inRange reports whether a key is in a range of the API.
func inRange(key string, from, end []byte) bool {
	switch {
	case len(end) == 0:
		return key == string(from)
	case string(end) == "\x00":
		return key >= string(from)
	}
	return key >= string(from) && key < string(end)
}

// find returns the keys of a range, in order.
func (d *revisions) find(from, end []byte) (found []*mvccpb.KeyValue) {
	for _, key := range slices.Sorted(maps.Keys(d.keys)) {
		if inRange(key, from, end) {
			found = append(found, d.keys[key])
		}
	}
	return found
}

// read reads a range.
func (d *revisions) read(r *etcdserverpb.RangeRequest) *etcdserverpb.RangeResponse {
	found := d.find(r.Key, r.RangeEnd)
	out := &etcdserverpb.RangeResponse{Header: d.header(), Count: int64(len(found))}
	if r.CountOnly {
		return out
	}
	if r.SortTarget == etcdserverpb.RangeRequest_CREATE {
		slices.SortFunc(found, func(a, b *mvccpb.KeyValue) int { return int(a.CreateRevision - b.CreateRevision) })
	}
	for _, kv := range found {
		switch {
		case r.MinCreateRevision > 0 && kv.CreateRevision < r.MinCreateRevision, r.MaxCreateRevision > 0 && kv.CreateRevision > r.MaxCreateRevision:
			continue
		case r.Limit > 0 && int64(len(out.Kvs)) == r.Limit:
			out.More = true
			return out
		case r.KeysOnly:
			kv = &mvccpb.KeyValue{Key: kv.Key, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision, Version: kv.Version, Lease: kv.Lease}
		}
		out.Kvs = append(out.Kvs, kv)
	}
	return out
}

// holds reports whether a comparison holds. A range without keys is compared as a key that
// does not exist.
func (d *revisions) holds(c *etcdserverpb.Compare) bool {
	found := d.find(c.Key, c.RangeEnd)
	if len(found) == 0 {
		found = []*mvccpb.KeyValue{{}}
	}
	return !slices.ContainsFunc(found, func(kv *mvccpb.KeyValue) bool { return !compares(c, kv) })
}

func compares(c *etcdserverpb.Compare, kv *mvccpb.KeyValue) bool {
	var is, want int64
	switch c.Target {
	case etcdserverpb.Compare_CREATE:
		is, want = kv.CreateRevision, c.GetCreateRevision()
	case etcdserverpb.Compare_MOD:
		is, want = kv.ModRevision, c.GetModRevision()
	case etcdserverpb.Compare_VERSION:
		is, want = kv.Version, c.GetVersion()
	case etcdserverpb.Compare_LEASE:
		is, want = kv.Lease, c.GetLease()
	default:
		panic("sim: etcd compares no " + c.Target.String())
	}
	switch c.Result {
	case etcdserverpb.Compare_EQUAL:
		return is == want
	case etcdserverpb.Compare_LESS:
		return is < want
	case etcdserverpb.Compare_GREATER:
		return is > want
	}
	return is != want
}

// branch returns what a transaction does.
func (d *revisions) branch(r *etcdserverpb.TxnRequest) (ops []*etcdserverpb.RequestOp, succeeded bool) {
	if slices.ContainsFunc(r.Compare, func(c *etcdserverpb.Compare) bool { return !d.holds(c) }) {
		return r.Failure, false
	}
	return r.Success, true
}

// do does operations, one after the other, as one change, or none of them.
func (d *revisions) do(ops []*etcdserverpb.RequestOp, hasLease func(int64) bool) ([]*etcdserverpb.ResponseOp, error) {
	for _, op := range ops {
		p := op.GetRequestPut()
		switch {
		case p == nil:
		case p.Lease != 0 && !hasLease(p.Lease):
			return nil, rpctypes.ErrGRPCLeaseNotFound
		case p.IgnoreValue && d.keys[string(p.Key)] == nil:
			return nil, rpctypes.ErrGRPCKeyNotFound
		}
	}
	at, out := d.revision+1, make([]*etcdserverpb.ResponseOp, len(ops))
	for i, op := range ops {
		out[i] = &etcdserverpb.ResponseOp{}
		switch r := op.Request.(type) {
		case *etcdserverpb.RequestOp_RequestRange:
			out[i].Response = &etcdserverpb.ResponseOp_ResponseRange{ResponseRange: d.read(r.RequestRange)}
		case *etcdserverpb.RequestOp_RequestPut:
			d.put(r.RequestPut, at)
			out[i].Response = &etcdserverpb.ResponseOp_ResponsePut{ResponsePut: &etcdserverpb.PutResponse{Header: d.header()}}
		case *etcdserverpb.RequestOp_RequestDeleteRange:
			found := d.find(r.RequestDeleteRange.Key, r.RequestDeleteRange.RangeEnd)
			d.remove(found, at)
			out[i].Response = &etcdserverpb.ResponseOp_ResponseDeleteRange{
				ResponseDeleteRange: &etcdserverpb.DeleteRangeResponse{Header: d.header(), Deleted: int64(len(found))},
			}
		default:
			panic("sim: etcd has no nested transactions")
		}
	}
	return out, nil
}

// put puts a key, at a revision.
func (d *revisions) put(r *etcdserverpb.PutRequest, at int64) {
	kv := &mvccpb.KeyValue{Key: r.Key, Value: r.Value, Lease: r.Lease, CreateRevision: at, ModRevision: at, Version: 1}
	if old := d.keys[string(r.Key)]; old != nil {
		kv.CreateRevision, kv.Version = old.CreateRevision, old.Version+1
		if r.IgnoreValue {
			kv.Value = old.Value
		}
	}
	d.keys[string(r.Key)] = kv
	d.revision, d.history = at, append(d.history, &mvccpb.Event{Type: mvccpb.PUT, Kv: kv})
}

// remove removes keys, at a revision.
func (d *revisions) remove(kvs []*mvccpb.KeyValue, at int64) {
	for _, kv := range kvs {
		delete(d.keys, string(kv.Key))
		d.revision = at
		d.history = append(d.history, &mvccpb.Event{Type: mvccpb.DELETE, Kv: &mvccpb.KeyValue{Key: kv.Key, ModRevision: at}})
	}
}

// removeOf removes the keys of a lease, as one change.
func (d *revisions) removeOf(lease int64) {
	kvs := d.find([]byte{0}, []byte{0})
	d.remove(slices.DeleteFunc(kvs, func(kv *mvccpb.KeyValue) bool { return kv.Lease != lease }), d.revision+1)
}

// since returns the index of the first event at or after a revision.
func (d *revisions) since(revision int64) int {
	at, _ := slices.BinarySearchFunc(d.history, revision, func(e *mvccpb.Event, revision int64) int {
		if e.Kv.ModRevision < revision {
			return -1
		}
		return 1
	})
	return at
}
