package consul

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/driver"
)

// store is the requests, one method each. It holds no state.
type store struct {
	client    *api.Client
	dc        string
	namespace string
	partition string
}

func (s *store) write(ctx context.Context) *api.WriteOptions {
	o := &api.WriteOptions{Datacenter: s.dc, Namespace: s.namespace, Partition: s.partition}
	return o.WithContext(ctx)
}

func (s *store) read(ctx context.Context) *api.QueryOptions {
	o := &api.QueryOptions{Datacenter: s.dc, Namespace: s.namespace, Partition: s.partition}
	return o.WithContext(ctx)
}

// op is one operation of a transaction.
type op struct{ KV kvOp }

type kvOp struct {
	Verb      api.KVOp
	Key       string
	Value     []byte `json:",omitempty"`
	Session   string `json:",omitempty"`
	Index     uint64 `json:",omitempty"`
	Namespace string `json:",omitempty"`
	Partition string `json:",omitempty"`
}

func lockOp(key, session string, value []byte) op {
	return op{kvOp{Verb: api.KVLock, Key: key, Session: session, Value: value}}
}

// indexOp makes a transaction fail unless the key is as it was read.
func indexOp(p pair) op {
	return op{kvOp{Verb: api.KVCheckIndex, Key: p.Key, Index: p.ModifyIndex}}
}

func keyOp(verb api.KVOp, key string) op { return op{kvOp{Verb: verb, Key: key}} }

// A rollback says that Consul refused a transaction as a whole: nothing of it
// was done.
type rollback struct {
	Errors []struct {
		OpIndex int
		What    string
	}
}

func (r *rollback) Error() string {
	var whats []string
	for _, e := range r.Errors {
		whats = append(whats, fmt.Sprintf("operation %d: %s", e.OpIndex, e.What))
	}
	return "transaction rolled back: " + strings.Join(whats, "; ")
}

// failed tells whether the operation at index i was refused, and for what.
func (r *rollback) failed(i int) (string, bool) {
	for _, e := range r.Errors {
		if e.OpIndex == i {
			return e.What, true
		}
	}
	return "", false
}

// commit runs a transaction that writes: through Raft, so the server that
// answers is the leader, and what it answers is the truth at one Raft index.
func (s *store) commit(ctx context.Context, ops ...op) ([]pair, error) {
	var out struct{ Results []struct{ KV pair } }
	if err := s.transact(ctx, ops, &out); err != nil {
		return nil, err
	}
	pairs := make([]pair, len(out.Results))
	for i, r := range out.Results {
		pairs[i] = r.KV
	}
	return pairs, nil
}

// denied says that the ACL token lacks a right, so nothing was done.
type denied string

func (e denied) Error() string { return string(e) }

func isDenied(what string) bool { return strings.Contains(what, "Permission denied") }

// asRollback reads the answer to a transaction that was refused.
func asRollback(err error) error {
	var status api.StatusError
	if !errors.As(err, &status) || status.Code != http.StatusConflict {
		return err
	}
	var r rollback
	if json.Unmarshal([]byte(status.Body), &r) != nil || len(r.Errors) == 0 {
		return err
	}
	for _, e := range r.Errors {
		if isDenied(e.What) {
			return denied(e.What)
		}
	}
	return &r
}

// do is commit where only counts that it was done.
func (s *store) do(ctx context.Context, ops ...op) error { return s.transact(ctx, ops, nil) }

func (s *store) transact(ctx context.Context, ops []op, out any) error {
	if s.namespace != "" || s.partition != "" {
		for i := range ops {
			ops[i].KV.Namespace, ops[i].KV.Partition = s.namespace, s.partition
		}
	}
	_, err := s.client.Raw().Write("/v1/txn", ops, out, s.write(ctx))
	if err != nil {
		return asRollback(err)
	}
	return nil
}

// checkSession asks which of the keys are not locked by the session, in at
// most 64 keys. The answer may come from the past, unless exact.
func (s *store) checkSession(ctx context.Context, session string, keys []string, exact bool) (missing []int, err error) {
	ops := make(api.TxnOps, len(keys))
	for i, key := range keys {
		ops[i] = &api.TxnOp{KV: &api.KVTxnOp{
			Verb: api.KVCheckSession, Key: key, Session: session,
			Namespace: s.namespace, Partition: s.partition,
		}}
	}
	q := s.read(ctx)
	q.RequireConsistent = exact
	ok, out, _, err := s.client.Txn().Txn(ops, q)
	if err != nil || ok {
		return nil, err
	}
	for _, e := range out.Errors {
		if isDenied(e.What) {
			return nil, denied(e.What)
		}
		missing = append(missing, e.OpIndex)
	}
	return missing, nil
}

// trees reads all pairs below some prefixes, exactly and at one index.
func (s *store) trees(ctx context.Context, prefixes ...string) ([]pair, error) {
	ops := make(api.TxnOps, len(prefixes))
	for i, prefix := range prefixes {
		ops[i] = &api.TxnOp{KV: &api.KVTxnOp{
			Verb: api.KVGetTree, Key: prefix, Namespace: s.namespace, Partition: s.partition,
		}}
	}
	q := s.read(ctx)
	q.RequireConsistent = true
	ok, out, meta, err := s.client.Txn().Txn(ops, q)
	switch {
	case err != nil:
		return nil, err
	case meta.ResultsFilteredByACLs:
		return nil, fmt.Errorf("the ACL token may not read all keys below %q", prefixes)
	case !ok && len(out.Errors) > 0:
		return nil, errors.New(out.Errors[0].What)
	}
	pairs := make([]pair, len(out.Results))
	for i, r := range out.Results {
		pairs[i] = pairOf(r.KV)
	}
	return pairs, nil
}

// list reads all pairs below a prefix, at the index that it returns or later.
// It is exact: the answering server has made sure that it still leads.
func (s *store) list(ctx context.Context, prefix string) ([]pair, uint64, error) {
	q := s.read(ctx)
	q.RequireConsistent = true
	return s.listWith(prefix, q)
}

func (s *store) listWith(prefix string, q *api.QueryOptions) ([]pair, uint64, error) {
	kvs, meta, err := s.client.KV().List(prefix, q)
	if err != nil {
		return nil, 0, err
	}
	if meta.ResultsFilteredByACLs {
		return nil, 0, fmt.Errorf("the ACL token may not read all keys below %q", prefix)
	}
	pairs := make([]pair, len(kvs))
	for i, kv := range kvs {
		pairs[i] = pairOf(kv)
	}
	return pairs, meta.LastIndex, nil
}

// keysBelow reads the keys below a prefix, at the index that it returns or
// later. They may be those of the past.
func (s *store) keysBelow(ctx context.Context, prefix string) ([]string, uint64, error) {
	keys, meta, err := s.client.KV().Keys(prefix, "", s.read(ctx))
	if err != nil {
		return nil, 0, err
	}
	return keys, meta.LastIndex, nil
}

func pairOf(kv *api.KVPair) pair {
	return pair{
		Key: kv.Key, Value: kv.Value, Session: kv.Session,
		CreateIndex: kv.CreateIndex, ModifyIndex: kv.ModifyIndex,
	}
}

// get reads one pair, exactly; nil: it is not there.
func (s *store) get(ctx context.Context, key string) (*pair, error) {
	q := s.read(ctx)
	q.RequireConsistent = true
	kv, _, err := s.client.KV().Get(key, q)
	if err != nil || kv == nil {
		return nil, err
	}
	p := pairOf(kv)
	return &p, nil
}

// createSession makes a session that only its TTL ends: no health check, so
// that the failure of the agent that was asked takes no lock away; and no
// lock delay, see the package comment.
func (s *store) createSession(ctx context.Context, name string, ttl time.Duration) (string, error) {
	in := map[string]any{
		"Name": name, "TTL": ttl.String(), "Behavior": api.SessionBehaviorDelete,
		"LockDelay": "0s", "NodeChecks": []string{},
	}
	var out struct{ ID string }
	if _, err := s.client.Raw().Write("/v1/session/create", in, &out, s.write(ctx)); err != nil {
		return "", err
	}
	return out.ID, nil
}

// errNotReady says that a server does not know yet what it has on its disk.
var errNotReady = errors.New("the consul server is not ready: it does not know a session that it has")

// renewSession reports false when there is no such session. A leader that has
// just been started or elected answers so before it has read its log: only an
// exact read is believed.
func (s *store) renewSession(ctx context.Context, id string) (bool, error) {
	var out []struct{ ID string }
	_, err := s.client.Raw().Write("/v1/session/renew/"+id, nil, &out, s.write(ctx))
	if statusOf(err) != http.StatusNotFound {
		return err == nil, err
	}
	q := s.read(ctx)
	q.RequireConsistent = true
	there, _, err := s.client.Session().Info(id, q)
	if err == nil && there != nil {
		err = errNotReady
	}
	return false, err
}

func (s *store) destroySession(ctx context.Context, id string) error {
	_, err := s.client.Session().Destroy(id, s.write(ctx))
	return err
}

// statusOf is the HTTP status that an error tells of, or 0.
func statusOf(err error) int {
	var status api.StatusError
	if errors.As(err, &status) {
		return status.Code
	}
	return 0
}

// passing tells whether an agent that can be reached said that it cannot serve
// the request at this moment: no leader, a change of leader, a rate limit.
func passing(err error) bool {
	var status api.StatusError
	if !errors.As(err, &status) {
		// api.Txn reads nothing but the text off a failure.
		return err != nil && strings.HasPrefix(err.Error(), failedRequest) && transient(err.Error())
	}
	switch status.Code {
	case http.StatusTooManyRequests, http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		return true
	case http.StatusInternalServerError:
		return transient(status.Body)
	}
	return false
}

const failedRequest = "Failed request: "

// transients are parts of what agents and servers say that pass: from Consul's
// agent/structs/errors.go, Raft, and the connections between them. That an
// error came by RPC says nothing: agents that are no servers put that before
// every error.
var transients = []string{
	"leader", "No known Consul servers", "No path to datacenter", "no server currently reachable",
	"not ready", "rate limit", "rpc error getting client", "raft is already shutdown",
	"timed out", "timeout", "deadline", "EOF", "connection", "broken pipe", "stream closed", "session shutdown",
}

func transient(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(transients, func(part string) bool {
		return strings.Contains(text, strings.ToLower(part))
	})
}

// mark marks an error that means that Consul serves nobody at the moment. The
// core marks those of the network.
func mark(err error) error {
	if passing(err) || errors.Is(err, errNotReady) {
		return driver.Unavailable(err)
	}
	return err
}

// unknown tells whether a write that failed with err may have been done, or
// may yet be done: everything but an answer that says no.
func unknown(err error) bool {
	var r *rollback
	var no denied
	if errors.As(err, &r) || errors.As(err, &no) {
		return false
	}
	status := statusOf(err)
	return status < 400 || status >= 500
}

// backoff grows a delay between tries.
func backoff(delay time.Duration) time.Duration {
	return min(max(2*delay, 25*time.Millisecond), time.Second)
}

// sleep waits for d; it reports false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
