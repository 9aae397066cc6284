package consul

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"
)

func (s *store) write(ctx context.Context) *api.WriteOptions {
	o := &api.WriteOptions{Datacenter: s.opts.datacenter, Namespace: s.opts.namespace, Partition: s.opts.partition}
	return o.WithContext(ctx)
}

// read is for reads in Consul's default mode. A deposed leader may answer them with
// old data.
func (s *store) read(ctx context.Context) *api.QueryOptions {
	o := &api.QueryOptions{Datacenter: s.opts.datacenter, Namespace: s.opts.namespace, Partition: s.opts.partition}
	return o.WithContext(ctx)
}

// exact is for reads in consistent mode: the server checks first that it still leads.
func (s *store) exact(ctx context.Context) *api.QueryOptions {
	o := s.read(ctx)
	o.RequireConsistent = true
	return o
}

// op is one operation of a transaction that writes.
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

func keyOp(verb api.KVOp, key string) op { return op{kvOp{Verb: verb, Key: key}} }

func lockOp(key, session string, value []byte) op {
	return op{kvOp{Verb: api.KVLock, Key: key, Session: session, Value: value}}
}

// indexOp makes a transaction fail unless the key is as it was read.
func indexOp(key string, index uint64) op {
	return op{kvOp{Verb: api.KVCheckIndex, Key: key, Index: index}}
}

// commit runs a transaction that writes. It passes through Raft, so the leader answers,
// and its answer is the state at one Raft index.
func (s *store) commit(ctx context.Context, ops ...op) (api.KVPairs, error) {
	for i := range ops {
		ops[i].KV.Namespace, ops[i].KV.Partition = s.opts.namespace, s.opts.partition
	}
	var out struct{ Results api.TxnResults }
	if _, err := s.client.Raw().Write("/v1/txn", ops, &out, s.write(ctx)); err != nil {
		return nil, asRollback(err)
	}
	return pairsOf(out.Results), nil
}

func pairsOf(results api.TxnResults) api.KVPairs {
	pairs := make(api.KVPairs, len(results))
	for i, result := range results {
		pairs[i] = result.KV
	}
	return pairs
}

// ask runs a transaction that only reads, in consistent mode.
func (s *store) ask(ctx context.Context, ops ...op) (api.KVPairs, error) {
	reads := make(api.TxnOps, len(ops))
	for i, o := range ops {
		reads[i] = &api.TxnOp{KV: &api.KVTxnOp{
			Verb: o.KV.Verb, Key: o.KV.Key, Namespace: s.opts.namespace, Partition: s.opts.partition,
		}}
	}
	_, out, meta, err := s.client.Txn().Txn(reads, s.exact(ctx))
	if err != nil {
		return nil, err
	}
	if len(out.Errors) > 0 {
		return nil, errors.New(out.Errors[0].What)
	}
	return pairsOf(out.Results), filtered(meta)
}

// list reads all pairs below a prefix, at the index that it returns or later.
func (s *store) list(q *api.QueryOptions, prefix string) (api.KVPairs, uint64, error) {
	pairs, meta, err := s.client.KV().List(prefix, q)
	if err != nil {
		return nil, 0, err
	}
	return pairs, meta.LastIndex, filtered(meta)
}

// get reads one pair, at the index that it returns or later, or nil if it is not there.
func (s *store) get(q *api.QueryOptions, key string) (*api.KVPair, uint64, error) {
	p, meta, err := s.client.KV().Get(key, q)
	if err != nil {
		return nil, 0, err
	}
	return p, meta.LastIndex, nil
}

// filtered returns the error of an answer that may lack tickets.
func filtered(meta *api.QueryMeta) error {
	if !meta.ResultsFilteredByACLs {
		return nil
	}
	return errFiltered
}

var errFiltered = errors.New("the ACL token may not read all keys below the prefix")

// A rollback says that Consul refused a transaction as a whole: nothing of it
// was done.
type rollback struct{ Errors []objection }

// An objection is why one operation was refused.
type objection struct {
	OpIndex int
	What    string
}

// part returns the rollback for some of the operations, or nil if nothing was wrong with
// them.
func (r *rollback) part(first, n int) *rollback {
	var own rollback
	for _, e := range r.Errors {
		if i := e.OpIndex - first; i >= 0 && i < n {
			own.Errors = append(own.Errors, objection{i, e.What})
		}
	}
	if own.Errors == nil {
		return nil
	}
	return &own
}

func (r *rollback) Error() string {
	return fmt.Sprintf("transaction rolled back: %v", r.Errors)
}

// sessionOver reports whether the reason was that a session has ended.
func (r *rollback) sessionOver() bool { return strings.Contains(r.Error(), "invalid session") }

// denied says that the ACL token lacks a right, so nothing was done.
type denied string

func (e denied) Error() string { return string(e) }

// asRollback decodes the answer to a refused transaction.
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
		if strings.Contains(e.What, "Permission denied") {
			return denied(e.What)
		}
	}
	return &r
}

// statusOf returns the HTTP status in an error, or 0.
func statusOf(err error) int {
	var status api.StatusError
	if errors.As(err, &status) {
		return status.Code
	}
	return 0
}

// unknown reports whether a write that failed with err may have been done, or may
// still be done. That is so unless Consul has answered that it refuses the write.
func unknown(err error) bool {
	if errors.As(err, new(*rollback)) || errors.As(err, new(denied)) {
		return false
	}
	status := statusOf(err)
	return status < 400 || status >= 500
}

// noHTTP reports whether the answer was not one of HTTP, but of another kind of server. Package net/http has no type for that.
func noHTTP(err error) bool {
	return errors.As(err, new(*url.Error)) && strings.Contains(err.Error(), "malformed HTTP ")
}

// Temporary implements kvqueue.Store: the agent has answered that it cannot serve the
// request now, because of a missing leader, a change of leader or a rate limit.
func (s *store) Temporary(err error) bool {
	if errors.Is(err, errNotReady) {
		return true
	}
	var status api.StatusError
	if !errors.As(err, &status) {
		// api.Txn returns only the text of a failure.
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

// transients are parts of the errors of agents and servers that pass: from Consul's
// agent/structs/errors.go, from Raft, and from the connections between them. A prefix
// that says that the error came by RPC means nothing: client agents put it before every
// error.
var transients = []string{
	"leader", "no known consul servers", "no path to datacenter", "no server currently reachable",
	"not ready", "rate limit", "rpc error getting client", "raft is already shutdown",
	"timed out", "timeout", "deadline", "eof", "connection", "broken pipe", "stream closed", "session shutdown",
}

func transient(text string) bool {
	text = strings.ToLower(text)
	return slices.ContainsFunc(transients, func(part string) bool { return strings.Contains(text, part) })
}
