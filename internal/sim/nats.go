package sim

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/nats"
)

// bucket is a model of servers of NATS with JetStream, by the client protocol and the documents of JetStream: one
// Key-Value bucket on three of them. They lose nothing. A replica that is read may be behind. While the bucket has no
// leader, readings are answered all the same; a write is refused, or not answered, and the next leader may do it. Each
// leader has a clock of its own. What the bucket republishes is heard by who is connected.
type bucket struct {
	s     *server
	rnd   *stream
	signs *signs

	mu       sync.Mutex
	config   *jetstream.StreamConfig // nil: there is no bucket
	last     uint64                  // the number of the last write
	entries  map[string][]natsEntry  // by subject, the newest last, and some before it
	links    []*natsLink
	leader   int
	headless time.Time // when the bucket has its present leader
}

type natsEntry struct {
	subject string
	number  uint64
	value   []byte
	until   time.Time
}

// natsLink is a connection, at the server.
type natsLink struct {
	b    *bucket
	c    *conn
	subs map[string]string // subjects by the number of the subscription
}

func newBucket(s *server) *bucket {
	runtime.GC() // the client keeps timers for the next connection, which may be of another bubble
	runtime.GC()
	return &bucket{s: s, rnd: newStream(s.w.seed, s.name), signs: newSigns(s.w), entries: make(map[string][]natsEntry)}
}

func (*bucket) restart() bool { return false }

// live returns the documents by key. With mu held.
func (b *bucket) live(yield func(key string, value []byte) bool) {
	for subject := range b.entries {
		key := keyOfSubject(subject)
		if e := b.at(subject, b.last); e != nil && !strings.HasSuffix(key, ":b") && !yield(key, e.value) {
			return
		}
	}
}

// keyOfSubject is the key of an entry, as package casqueue has it.
func keyOfSubject(subject string) string {
	return strings.ReplaceAll(strings.TrimPrefix(subject, "$KV.locker."), ".", ":")
}

func (b *bucket) leftovers() (keys []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key := range b.live {
		keys = append(keys, key)
	}
	return keys
}

func (b *bucket) has(name string, token uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, value := range b.live {
		if bytes.Contains(value, fmt.Appendf(nil, `"n":%q`, name)) && bytes.Contains(value, fmt.Appendf(nil, `"k":%d,`, token)) {
			return true
		}
	}
	return false
}

func (b *bucket) lease(name, id string, _ time.Time) (there bool, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return leaseIn(name, id, func(yield func([]byte) bool) {
		for _, value := range b.live {
			if !yield(value) {
				return
			}
		}
	})
}

func (b *bucket) signsOf() *signs { return b.signs }

// zero is when the clock of a leader showed nothing.
func (b *bucket) zero(leader string) time.Time {
	n, _ := strconv.Atoi(strings.TrimPrefix(leader, "n"))
	return time.Unix(0, 0).Add(time.Duration(n-1) * 7 * time.Second)
}

// natsDriver is deeper in ownedNATS than what checks its answers.
type natsDriver struct{ *nats.Driver }

// ownedNATS closes its connection, as a driver does that is opened by URL.
type ownedNATS struct {
	*contract
	natsDriver
	nc *natsgo.Conn
}

func (d ownedNATS) Close() error {
	err := d.contract.Close()
	d.nc.Close()
	return err
}

// natsWay connects a process.
type natsWay struct {
	b *bucket
	p *path
}

// Dial implements natsgo.CustomDialer.
func (w natsWay) Dial(string, string) (net.Conn, error) {
	greeted := false
	return w.p.connect(w.b.link, splitNATS, func(req []byte) []byte {
		switch verb, _, _ := bytes.Cut(req, []byte(" ")); {
		case string(verb) == "CONNECT":
			return []byte{}
		case greeted:
			return nil
		}
		greeted = true
		return []byte("PONG\r\n")
	})
}

func openBucket(s *server, process string) (driver.Driver, *path, error) {
	b, p := s.model.(*bucket), newPath(s, process)
	nc, err := natsgo.Connect("nats://"+s.name, natsgo.SetCustomDialer(natsWay{b, p}), natsgo.SkipHostLookup(), natsgo.RetryOnFailedConnect(true),
		natsgo.MaxReconnects(-1), natsgo.ReconnectWait(100*time.Millisecond), natsgo.ReconnectJitter(0, 0), natsgo.PingInterval(2*time.Second),
		natsgo.ErrorHandler(func(*natsgo.Conn, *natsgo.Subscription, error) {}))
	if err != nil {
		return nil, nil, err
	}
	d, err := nats.New(nc)
	return ownedNATS{&contract{w: s.w, m: b, d: d, process: process, again: newStream(s.w.seed, "again").one(2)}, natsDriver{d}, nc}, p, err
}

// link makes the server's end of a connection. A client that is given to the driver may go on sending.
func (b *bucket) link(c *conn) (serve func([]byte) []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := &natsLink{b: b, c: c, subs: make(map[string]string)}
	c.brief, c.name = false, nameOfNATS
	c.received = []byte(`INFO {"server_id":"S","version":"2.14.0","headers":true,"max_payload":1048576,"proto":1}` + "\r\n")
	b.links = append(slices.DeleteFunc(b.links, func(l *natsLink) bool { return l.c.failed() }), l)
	return l.serve
}

// splitNATS cuts off the first request.
func splitNATS(sent []byte) (req, rest []byte) {
	line, after, ok := bytes.Cut(sent, []byte("\r\n"))
	if !ok {
		return nil, sent
	}
	n := len(line) + 2
	if f := strings.Fields(string(line)); f[0] == "PUB" || f[0] == "HPUB" {
		size, _ := strconv.Atoi(f[len(f)-1])
		if n += size + 2; len(after) < size+2 {
			return nil, sent
		}
	}
	return sent[:n:n], sent[n:]
}

// nameOfNATS says what the first of some requests does that is not about the connection alone.
func nameOfNATS(sent []byte) string {
	for req, rest := splitNATS(sent); req != nil; req, rest = splitNATS(rest) {
		line, body, _ := strings.Cut(string(req), "\r\n")
		f := strings.Fields(line)
		switch {
		case !strings.HasSuffix(f[0], "PUB"):
		case strings.HasPrefix(f[1], "$JS.API.DIRECT"):
			return "get " + strings.ReplaceAll(body, ".", ":")
		case strings.HasPrefix(f[1], "$JS.API.STREAM.INFO"):
			return "info"
		case strings.HasPrefix(f[1], "$JS.API.STREAM"):
			return "create"
		default:
			key := keyOfSubject(f[1])
			if strings.HasSuffix(key, ":b") {
				return "barrier"
			}
			return "put " + key + " " + body
		}
	}
	return "sub"
}

// serve answers one request.
func (l *natsLink) serve(req []byte) []byte {
	line, body, _ := bytes.Cut(req, []byte("\r\n"))
	f := strings.Fields(string(line))
	l.b.mu.Lock()
	defer l.b.mu.Unlock()
	switch f[0] {
	case "PING":
		return []byte("PONG\r\n")
	case "SUB":
		l.subs[f[len(f)-1]] = f[1]
	case "UNSUB":
		delete(l.subs, f[1])
	case "PUB", "HPUB":
		head := natsgo.Header{}
		body = bytes.TrimSuffix(body, []byte("\r\n"))
		if f[0] == "HPUB" {
			size, _ := strconv.Atoi(f[len(f)-2])
			head, _ = natsgo.DecodeHeadersMsg(body[:size])
			body = body[size:]
		}
		return l.request(f[1], f[2], head, bytes.Clone(body))
	}
	return nil
}

// request answers a request. With bucket.mu held.
func (l *natsLink) request(subject, reply string, head natsgo.Header, body []byte) []byte {
	b := l.b
	_, _, until := b.s.state()
	if !until.Equal(b.headless) {
		b.headless, b.leader = until, (b.leader+1+b.rnd.n(2))%3
	}
	api := strings.HasPrefix(subject, "$JS.API.")
	switch {
	case strings.HasPrefix(subject, "$JS.API.DIRECT.GET."):
		return l.get(reply, body)
	case b.headless.After(time.Now()):
		if what := b.rnd.n(3); what == 0 {
			return l.deliver(reply, "NATS/1.0 503\r\n\r\n", nil)
		} else if what == 1 && !api {
			b.s.w.at(b.headless, func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				l.put(subject, head, body)
			})
		}
		return nil
	case api:
		return l.answer(reply, l.info(subject, body))
	}
	return l.answer(reply, l.put(subject, head, body))
}

// natsRefused is the answer of JetStream to a request that it refuses.
func natsRefused(code, number int, text string) any {
	return map[string]any{"error": map[string]any{"code": code, "err_code": number, "description": text}}
}

// info says what the bucket is, and makes it. With bucket.mu held.
func (l *natsLink) info(subject string, body []byte) any {
	b := l.b
	switch create := strings.HasPrefix(subject, "$JS.API.STREAM.CREATE."); {
	case create && b.config != nil:
		return natsRefused(400, 10058, "stream name already in use with a different configuration")
	case create:
		b.config = new(jetstream.StreamConfig)
		if err := json.Unmarshal(body, b.config); err != nil {
			panic(err)
		}
		b.last = b.config.FirstSeq - 1
	case b.config == nil:
		return natsRefused(404, 10059, "stream not found")
	}
	leader := fmt.Sprint("n", b.leader)
	return jetstream.StreamInfo{Config: *b.config, Cluster: &jetstream.ClusterInfo{Leader: leader}, TimeStamp: time.Unix(0, 0).Add(time.Since(b.zero(leader)))}
}

// put writes an entry, if the last one is that which the request has seen. With bucket.mu held.
func (l *natsLink) put(subject string, head natsgo.Header, value []byte) any {
	b := l.b
	if b.config == nil {
		return natsRefused(404, 10059, "stream not found")
	}
	old := b.at(subject, b.last)
	if seen := head.Get(jetstream.ExpectedLastSubjSeqHeader); seen != "" {
		number := uint64(0)
		if old != nil {
			number = old.number
		}
		if seen != strconv.FormatUint(number, 10) {
			return natsRefused(400, 10071, "wrong last sequence: "+strconv.FormatUint(number, 10))
		}
	}
	keep, err := time.ParseDuration(head.Get(jetstream.MsgTTLHeader))
	if err != nil || head.Get(jetstream.MsgRollup) != jetstream.MsgRollupSubject {
		panic("sim: NATS: a write that is kept for ever: " + subject)
	}
	b.last++
	b.signs.note(keyOfSubject(subject), value, b.zero)
	b.s.w.comesBack(b.s, ids(value, ""), always) // even when the bucket has forgotten the queue
	all := append(b.entries[subject], natsEntry{subject, b.last, value, time.Now().Add(keep + b.rnd.upTo(time.Second))})
	b.entries[subject] = all[max(0, len(all)-8):]
	l.deliver("_LOCKER.locker."+strings.TrimPrefix(subject, "$KV.locker."), "", nil) // to others: nobody listens to what it writes itself
	return jetstream.PubAck{Stream: "KV_locker", Sequence: b.last}
}

// at returns an entry as it was after a write; nil: there was none. With mu held.
func (b *bucket) at(subject string, number uint64) *natsEntry {
	for _, e := range slices.Backward(b.entries[subject]) {
		if e.number <= number {
			if e.until.Before(time.Now()) {
				return nil
			}
			return &e
		}
	}
	return nil
}

// get reads entries from a replica, which may be behind. A message of the answer may be lost. With bucket.mu held.
func (l *natsLink) get(reply string, body []byte) (out []byte) {
	b := l.b
	var wanted struct {
		Subjects []string `json:"multi_last"`
	}
	if err := json.Unmarshal(body, &wanted); err != nil {
		panic(err)
	}
	number := b.last
	if b.rnd.one(4) {
		number -= uint64(1 + b.rnd.n(4)) //nolint:gosec // small
	}
	entries := make(map[uint64]*natsEntry)
	for _, subject := range wanted.Subjects {
		if e := b.at(subject, number); e != nil {
			entries[e.number] = e
		}
	}
	if len(entries) == 0 {
		return l.deliver(reply, "NATS/1.0 404 No Results\r\n\r\n", nil)
	}
	last, lost := uint64(0), -1
	if b.rnd.one(20) {
		lost = b.rnd.n(len(entries))
	}
	for i, number := range slices.Sorted(maps.Keys(entries)) {
		e := entries[number]
		head := fmt.Sprintf("NATS/1.0\r\nNats-Subject: %s\r\nNats-Sequence: %d\r\nNats-Last-Sequence: %d\r\n\r\n", e.subject, number, last)
		if last = number; i != lost {
			out = append(out, l.deliver(reply, head, e.value)...)
		}
	}
	return append(out, l.deliver(reply, fmt.Sprintf("NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\nNats-Last-Sequence: %d\r\n\r\n", last), nil)...)
}

func (l *natsLink) answer(reply string, v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return l.deliver(reply, "", text)
}

// deliver sends a message to all who have subscribed to a subject, and returns what this connection gets. With bucket.mu held.
func (l *natsLink) deliver(subject, head string, body []byte) (here []byte) {
	for _, other := range l.b.links {
		for sub, pattern := range other.subs {
			if prefix, wild := strings.CutSuffix(pattern, "*"); pattern != subject && (!wild || !strings.HasPrefix(subject, prefix)) {
				continue
			}
			m := fmt.Sprintf("HMSG %s %s %d %d\r\n%s%s\r\n", subject, sub, len(head), len(head)+len(body), head, body)
			if head == "" {
				m = fmt.Sprintf("MSG %s %s %d\r\n%s\r\n", subject, sub, len(body), body)
			}
			if other != l {
				other.c.push([]byte(m), 0)
				continue
			}
			here = append(here, m...)
		}
	}
	return here
}
