package sim

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/consul"
)

// agent is a model of Consul 1.22 by its HTTP API and agent/consul/state: the key-value
// store, transactions, sessions of behaviour "delete", and blocking queries. A session
// ends between one and two times its TTL after its last renewal; a new leader begins all
// of them anew. Reads of the default mode may come from a leader that was deposed.
type agent struct {
	s     *server
	rnd   *stream
	query time.Duration // how long the clients' blocking queries wait

	mu       sync.Mutex
	index    uint64
	pairs    map[string]*api.KVPair
	deleted  map[string]uint64 // tombstones: the index of each deletion
	sessions map[string]*consulSession
	changed  chan struct{} // closed at each write
	made     int           // sessions
	unread   bool          // its leader has just been elected, and may not know all sessions yet
	past     []past        // what it was before the last writes
}

// past is what a leader knew that was deposed then.
type past struct {
	pairs map[string]*api.KVPair
	index uint64
}

type consulSession struct {
	id    string
	ttl   time.Duration
	timer *time.Timer
	begun int       // how often its TTL was started
	from  time.Time // since when it runs
}

func newConsul(s *server) *agent {
	return &agent{
		s: s, rnd: newStream(s.w.seed, s.name), query: pick(newStream(s.w.seed, s.name+" query"), time.Second, time.Second, 2*time.Second, 45*time.Second), index: 10, pairs: make(map[string]*api.KVPair), deleted: make(map[string]uint64),
		sessions: make(map[string]*consulSession), changed: make(chan struct{}),
	}
}

// restart elects a new leader. Its tombstones may have been collected meanwhile.
func (a *agent) restart() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, id := range slices.Sorted(maps.Keys(a.sessions)) {
		a.arm(a.sessions[id])
	}
	if a.rnd.one(2) {
		clear(a.deleted)
	}
	a.unread = true
	return false
}

func (a *agent) has(name string, token uint64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.keyOf(name, token) != ""
}

// keyOf returns the key of a ticket, or "". Tickets of two names may have one token. With mu held.
func (a *agent) keyOf(name string, token uint64) string {
	for key, p := range a.pairs {
		if p.CreateIndex == token && p.Session != "" && strings.HasPrefix(key, "locker/~queue/"+name+"/") {
			return key
		}
	}
	return ""
}

func (a *agent) leftovers() (all []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for key := range a.pairs {
		if key != "locker/~/protocol" {
			all = append(all, key)
		}
	}
	for id := range a.sessions {
		all = append(all, "session "+id)
	}
	slices.Sort(all)
	return all
}

// consulDriver is deeper in checkedConsul than what checks its answers.
type consulDriver struct{ *consul.Driver }

type checkedConsul struct {
	*contract
	consulDriver
}

// consulClient is the way of one process to its agent.
type consulClient struct {
	a *agent
	p *path

	mu    sync.Mutex
	stale *past // what a deposed leader knows; nil: the leader answers
}

func openConsul(s *server, process string) (driver.Driver, *path, error) {
	c := &consulClient{a: s.model.(*agent), p: newPath(s, process)}
	client, err := api.NewClient(&api.Config{Address: s.name, HttpClient: &http.Client{Transport: c}})
	if err != nil {
		return nil, nil, err
	}
	d, err := consul.New(client, consul.WithQueryWait(c.a.query))
	return checkedConsul{&contract{w: s.w, m: c.a, d: d, process: process, trusts: true}, consulDriver{d}}, c.p, err
}

// reply is an HTTP answer.
type reply struct {
	code  int
	index uint64
	body  string
}

func (r reply) String() string { return fmt.Sprintf("%d index %d %s", r.code, r.index, r.body) }

// RoundTrip implements http.RoundTripper.
func (c *consulClient) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil {
		body, _ = io.ReadAll(req.Body)
		_ = req.Body.Close()
	}
	what := req.Method + " " + req.URL.RequestURI() + " " + string(body)
	r, err := request(req.Context(), c.p, what, func(served context.Context) reply {
		return c.serve(served, req.Method, strings.TrimPrefix(req.URL.Path, "/v1/"), req.URL.Query(), body)
	})
	if err != nil {
		return nil, err
	}
	return &http.Response{
		StatusCode: r.code, Status: strconv.Itoa(r.code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{
			"X-Consul-Index": {strconv.FormatUint(r.index, 10)}, "X-Consul-Lastcontact": {"0"},
			"X-Consul-Knownleader": {"true"}, "Content-Type": {"application/json"},
		},
		Body: io.NopCloser(bytes.NewReader([]byte(r.body))), ContentLength: int64(len(r.body)),
	}, nil
}

// serve answers one request.
func (c *consulClient) serve(served context.Context, method, what string, q url.Values, body []byte) reply {
	a := c.a
	_, consistent := q["consistent"]
	read := !consistent && (method == http.MethodGet || what == "txn" && readsOnly(body))
	_, _, full := a.s.state()
	stale := c.isStale()
	if full.After(time.Now()) || stale && !read {
		return reply{code: 500, body: "rpc error making call: No cluster leader"}
	}
	if rest, ok := strings.CutPrefix(what, "kv/"); ok && method == http.MethodGet {
		return c.get(served, rest, q)
	}
	verb, id, _ := strings.Cut(strings.TrimPrefix(what, "session/"), "/")
	a.mu.Lock()
	defer a.mu.Unlock()
	switch verb {
	case "txn":
		if stale {
			defer func(now map[string]*api.KVPair) { a.pairs = now }(a.pairs)
			a.pairs = c.stale.pairs
		}
		return a.txn(body)
	case "create":
		return a.create(body)
	case "renew", "info":
		s, unread := a.sessions[id], a.unread
		a.unread = false
		switch {
		case unread && verb == "renew" && s != nil: // before it has read its log
			return reply{code: 404, body: "Session id '" + id + "' not found"}
		case s == nil && verb == "renew":
			return reply{code: 404, body: "Session id '" + id + "' not found"}
		case s == nil:
			return reply{code: 200, index: a.index, body: "[]"}
		case verb == "renew":
			a.arm(s)
		}
		return reply{code: 200, index: a.index, body: fmt.Sprintf(`[{"ID":%q,"TTL":%q}]`, s.id, s.ttl)}
	case "destroy":
		a.destroy(id)
		return reply{code: 200, body: "true"}
	}
	return reply{code: 404}
}

// readsOnly reports whether a transaction writes nothing.
func readsOnly(body []byte) bool {
	for _, verb := range []string{"set", "cas", "lock", "unlock", "delete"} {
		if bytes.Contains(body, []byte(`"Verb":"`+verb+`"`)) {
			return false
		}
	}
	return true
}

// isStale reports whether a deposed leader answers, and makes that see what there is
// now if it was deposed just now.
func (c *consulClient) isStale() bool {
	c.p.mu.Lock()
	stale := c.p.stale.After(time.Now())
	c.p.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !stale {
		c.stale = nil
	} else if c.stale == nil {
		c.a.mu.Lock()
		defer c.a.mu.Unlock()
		c.stale = &past{maps.Clone(c.a.pairs), c.a.index}
		if n := c.a.rnd.n(2*len(c.a.past) + 1); n < len(c.a.past) { // the process has used the new leader before
			c.stale = &c.a.past[n]
		}
	}
	return stale
}

// get reads one pair, or those below a prefix, and waits until there is news if it is to.
func (c *consulClient) get(served context.Context, key string, q url.Values) reply {
	_, recurse := q["recurse"]
	_, keys := q["keys"]
	since, _ := strconv.ParseUint(q.Get("index"), 10, 64)
	wait, _ := time.ParseDuration(q.Get("wait"))
	wait += c.a.rnd.upTo(wait/16 + time.Nanosecond)
	timer := time.NewTimer(time.Until(c.p.w.unique(time.Now().Add(wait))))
	defer timer.Stop()
	for over := since == 0; ; {
		stale := c.isStale()
		c.a.mu.Lock()
		changed := c.a.changed
		found, index := c.find(key, recurse || keys, stale)
		c.a.mu.Unlock()
		if over || index > since {
			return answer(found, index, keys)
		}
		select {
		case <-changed:
		case <-timer.C:
			over = true
		case <-served.Done():
			return reply{code: 500, body: "gone"}
		}
	}
}

// find returns pairs, in the order of their keys, and their index. With agent.mu held.
func (c *consulClient) find(key string, below, stale bool) (found []*api.KVPair, index uint64) {
	pairs, last := c.a.pairs, c.a.index
	if stale {
		pairs, last = c.stale.pairs, c.stale.index
	}
	for _, k := range slices.Sorted(maps.Keys(pairs)) {
		if k == key || below && strings.HasPrefix(k, key) {
			found, index = append(found, pairs[k]), max(index, pairs[k].ModifyIndex)
		}
	}
	if !stale {
		for k, at := range c.a.deleted {
			if below && strings.HasPrefix(k, key) {
				index = max(index, at)
			}
		}
	}
	if index == 0 {
		index = last
	}
	return found, index
}

func answer(found []*api.KVPair, index uint64, keys bool) reply {
	if len(found) == 0 {
		return reply{code: 404, index: index}
	}
	var body []byte
	if keys {
		names := make([]string, len(found))
		for i, p := range found {
			names[i] = p.Key
		}
		body, _ = json.Marshal(names)
	} else {
		body, _ = json.Marshal(found)
	}
	return reply{code: 200, index: index, body: string(body)}
}

// write begins a write. With mu held.
func (a *agent) write(before map[string]*api.KVPair) uint64 {
	if a.past = append(a.past, past{before, a.index}); len(a.past) > 5 {
		a.past = slices.Clone(a.past[1:])
	}
	a.index++
	a.unread = false // a leader does a write after all that is in its log
	close(a.changed)
	a.changed = make(chan struct{})
	return a.index
}

// create makes a session. With mu held.
func (a *agent) create(body []byte) reply {
	var in struct{ TTL, Behavior string }
	_ = json.Unmarshal(body, &in)
	ttl, err := time.ParseDuration(in.TTL)
	if in.Behavior != "delete" {
		return reply{code: 400, body: "Invalid Behavior setting '" + in.Behavior + "'"}
	}
	if err != nil || ttl < 10*time.Second || ttl > 24*time.Hour {
		return reply{code: 400, body: "Invalid Session TTL"}
	}
	a.write(maps.Clone(a.pairs))
	a.made++
	s := &consulSession{id: fmt.Sprintf("00000000-0000-0000-0000-%012d", a.made), ttl: ttl}
	a.sessions[s.id] = s
	a.arm(s)
	return reply{code: 200, body: fmt.Sprintf(`{"ID":%q}`, s.id)}
}

// arm starts a session's TTL anew. With mu held.
func (a *agent) arm(s *consulSession) {
	if s.timer != nil {
		s.timer.Stop()
	}
	s.begun++
	s.from = time.Now()
	begun, end := s.begun, a.s.w.unique(time.Now().Add(s.ttl+a.rnd.upTo(s.ttl)))
	var expire func()
	expire = func() {
		paused, down, full := a.s.state()
		if until := slices.MaxFunc([]time.Time{paused, down, full}, time.Time.Compare); until.After(time.Now()) {
			a.s.w.at(until.Add(a.rnd.upTo(time.Second)), expire)
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.sessions[s.id] == s && s.begun == begun {
			a.s.w.message("%s: session %s is over", a.s.name, s.id)
			a.destroy(s.id)
		}
	}
	s.timer = time.AfterFunc(time.Until(end), expire)
}

// destroy ends a session and deletes its keys. With mu held.
func (a *agent) destroy(id string) {
	s := a.sessions[id]
	if s == nil {
		return
	}
	s.timer.Stop()
	delete(a.sessions, id)
	index := a.write(maps.Clone(a.pairs))
	for key, p := range a.pairs {
		if p.Session == id {
			a.remove(key, index)
		}
	}
}

func (a *agent) remove(key string, index uint64) {
	delete(a.pairs, key)
	a.deleted[key] = index
}

// txn runs a transaction: on a copy, which becomes the state if no operation fails. With mu held.
func (a *agent) txn(body []byte) reply {
	var ops []struct{ KV api.KVTxnOp }
	if err := json.Unmarshal(body, &ops); err != nil {
		return reply{code: 400, body: err.Error()}
	}
	type failure struct {
		OpIndex int
		What    string
	}
	var out struct {
		Results []map[string]*api.KVPair
		Errors  []failure
	}
	before, deleted := maps.Clone(a.pairs), maps.Clone(a.deleted)
	index, wrote := a.index+1, false
	for i := range ops {
		op := &ops[i].KV
		got, changed, err := a.do(op, index)
		wrote = wrote || changed
		if err != nil {
			out.Errors = append(out.Errors, failure{i, err.Error()})
		}
		for _, p := range got {
			if shown := *p; op.Verb != api.KVGet && op.Verb != api.KVGetTree && op.Verb != api.KVGetOrEmpty {
				shown.Value = nil
				p = &shown
			}
			out.Results = append(out.Results, map[string]*api.KVPair{"KV": p})
		}
	}
	code := 200
	switch {
	case len(out.Errors) > 0:
		a.pairs, a.deleted, out.Results, code = before, deleted, nil, 409
	case wrote:
		a.write(before)
		for i := range ops {
			if v := ops[i].KV.Value; len(v) > 0 {
				a.s.w.comesBack(a.s, []string{idOf(v)}, func(name, id string, _ time.Time) bool { return a.ticketOf(name, id) != nil })
			}
		}
	}
	b, _ := json.Marshal(out)
	return reply{code: code, index: a.index, body: string(b)}
}

// do does one operation. With mu held.
func (a *agent) do(op *api.KVTxnOp, index uint64) (got []*api.KVPair, changed bool, err error) {
	p := a.pairs[op.Key]
	fails := func(format string, args ...any) ([]*api.KVPair, bool, error) {
		return nil, false, fmt.Errorf(format, args...)
	}
	next := &api.KVPair{Key: op.Key, Value: op.Value, CreateIndex: index, ModifyIndex: index}
	if p != nil {
		next.CreateIndex, next.LockIndex, next.Session = p.CreateIndex, p.LockIndex, p.Session
	}
	switch op.Verb {
	case api.KVGet, api.KVCheckSession, api.KVCheckIndex:
		switch {
		case p == nil:
			return fails("key %q doesn't exist", op.Key)
		case op.Verb == api.KVCheckSession && p.Session != op.Session:
			return fails("failed session check for key %q, current session %q != %q", op.Key, p.Session, op.Session)
		case op.Verb == api.KVCheckIndex && p.ModifyIndex != op.Index:
			return fails("failed index check for key %q, current modify index %d != %d", op.Key, p.ModifyIndex, op.Index)
		}
		return []*api.KVPair{p}, false, nil
	case api.KVGetOrEmpty:
		return []*api.KVPair{cmp.Or(p, &api.KVPair{Key: op.Key})}, false, nil
	case api.KVGetTree:
		for _, key := range slices.Sorted(maps.Keys(a.pairs)) {
			if strings.HasPrefix(key, op.Key) {
				got = append(got, a.pairs[key])
			}
		}
		return got, false, nil
	case api.KVCheckNotExists:
		if p != nil {
			return fails("key %q exists", op.Key)
		}
		return nil, false, nil
	case api.KVDelete:
		if p != nil {
			a.remove(op.Key, index)
		}
		return nil, p != nil, nil
	case api.KVSet:
	case api.KVCAS:
		if p == nil && op.Index != 0 || p != nil && p.ModifyIndex != op.Index {
			return fails("failed to set key %q, index is stale", op.Key)
		}
	case api.KVLock:
		switch {
		case a.sessions[op.Session] == nil:
			return fails("failed to lock key %q, invalid session %q", op.Key, op.Session)
		case p != nil && p.Session != "" && p.Session != op.Session:
			return fails("failed to lock key %q, lock is already held", op.Key)
		case p == nil || p.Session == "":
			next.LockIndex++
		}
		next.Session = op.Session
	case api.KVUnlock:
		if p == nil || p.Session != op.Session {
			return fails("failed to unlock key %q, lock isn't held, or is held by another session", op.Key)
		}
		next.Session = ""
	default:
		return nil, false, errors.New("unknown verb")
	}
	if p != nil && bytes.Equal(p.Value, next.Value) && p.Session == next.Session && p.LockIndex == next.LockIndex {
		return []*api.KVPair{p}, false, nil // a write that changes nothing is none
	}
	a.pairs[op.Key] = next
	delete(a.deleted, op.Key)
	return []*api.KVPair{next}, true, nil
}
