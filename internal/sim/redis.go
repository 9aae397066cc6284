package sim

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockerproject/locker/driver"
	lockerredis "github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/driver/redlock"
)

// node is a model of a server of Redis 6.2 or 7, by its documentation and RESP 2: the commands
// that the drivers and their scripts use, the scripts themselves in Lua, keys that expire by the
// milliseconds of a clock of its own, and subscriptions. A restart may lose the last second, or
// everything, and the scripts. A failover makes a replica the primary, which may lack the last
// writes; connections that are there stay with the old one, which is a replica then: it refuses
// writes, and may pass on what the new one publishes. What a connection has not sent when it is
// closed is dropped within seconds, as by SO_LINGER 0.
type node struct {
	s      *server
	rnd    *stream
	rate   float64 // of its clock
	ahead  time.Duration
	keeps  string        // what a restart leaves: all, the last second but, nothing
	waits  bool          // a replica acknowledges writes: WAIT
	group  []*node       // the nodes of Redlock; nil for one server
	excuse *redisExcuses // of the group

	mu     *sync.Mutex // of the group
	data   keyspace
	known  map[string]bool // scripts, by hash
	past   []redisPast     // before the last writes
	lostAt time.Time       // when it has last lost something, perhaps
	ledger ledger          // of Redlock
	acked  time.Time       // the replica has all that was written until then
	term   int             // counts failovers
	linked int             // connections to primaries before that term hear nothing of the new one
	links  []*redisLink    // connections that have subscribed
}

// redisPast is what a server held before a write.
type redisPast struct {
	at   time.Time
	data keyspace
}

// redisExcuses says which leases and which releases the servers have forgotten.
type redisExcuses struct {
	mu      sync.Mutex
	forgot  map[redisTicket]bool
	revived map[redisTicket]bool
	dropped map[string]bool  // names of which a waiting ticket is on no majority of the nodes any more
	barred  map[string]int64 // by ticket ID: the number that a node has refused, since a larger one has held there, unless the ticket has another by now
}

// redisTicket is a ticket as the servers show it.
type redisTicket struct {
	name  string
	token uint64
}

func init() { lockerredis.LogTo(slog.New(slog.DiscardHandler)) } // connections fail all the time

func newNode(s *server) *node {
	n := &node{
		s: s, rnd: newStream(s.w.seed, s.name), mu: new(sync.Mutex), data: make(keyspace), ledger: newLedger(0), known: make(map[string]bool),
		excuse: &redisExcuses{forgot: make(map[redisTicket]bool), revived: make(map[redisTicket]bool), dropped: make(map[string]bool), barred: make(map[string]int64)},
	}
	n.keeps = pick(n.rnd, "all", "all but a second", "nothing")
	n.waits = n.rnd.one(4)
	n.ahead = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Sub(s.w.begun)
	n.rate = 0.999 + 0.002*float64(n.rnd.n(1000))/1000
	return n
}

// newNodes makes the nodes of Redlock. Their clocks differ, and run at rates that differ by less than the drift.
func newNodes(servers []*server) {
	group := make([]*node, len(servers))
	for i, s := range servers {
		n := newNode(s)
		group[i], n.waits = n, false
		n.ahead += n.rnd.upTo(10*time.Second) - 5*time.Second
		n.rate = 0.996 + 0.008*float64(n.rnd.n(1000))/1000
		n.excuse, n.mu = group[0].excuse, group[0].mu
		s.model = n
	}
	for _, n := range group {
		n.group = group
	}
}

// time is the server's clock, in µs.
func (n *node) time() int64 {
	begun := n.s.w.begun
	return begun.Add(n.ahead + time.Duration(float64(time.Since(begun))*n.rate)).UnixMicro()
}

// restart starts the server again, with what it has kept.
func (n *node) restart() (loses bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before, waiting := n.held(), n.waiters()
	if n.keeps != "all" {
		n.lostAt, n.ledger = time.Now(), newLedger(0)
	}
	if n.keeps == "nothing" {
		n.ledger.since = n.time()
	}
	switch n.keeps {
	case "all but a second":
		n.data = n.before(time.Now().Add(-n.rnd.upTo(time.Second)))
	case "nothing":
		n.data = make(keyspace)
	}
	n.past, n.links = nil, nil
	clear(n.known)
	n.forget(before, true)
	n.drop(waiting)
	return n.keeps != "all" && n.group == nil
}

// failover makes a replica the primary. It lacks the last writes that it has not acknowledged.
func (n *node) failover() {
	n.mu.Lock()
	defer n.mu.Unlock()
	before := n.held()
	n.lostAt = time.Now()
	lag := pick(n.rnd, 0, n.rnd.upTo(50*time.Millisecond), n.rnd.upTo(time.Second))
	n.data = n.before(latest(n.acked, time.Now().Add(-lag)))
	n.past = nil
	clear(n.known)
	if n.term++; n.rnd.one(2) {
		n.linked = n.term
	}
	n.forget(before, !n.waits)
}

// before returns what there was at t. With mu held.
func (n *node) before(t time.Time) keyspace {
	for _, p := range n.past {
		if p.at.After(t) {
			return p.data
		}
	}
	return n.data
}

// held returns the leases that the server knows, and until when. With mu held.
func (n *node) held() map[redisTicket]int64 {
	held := make(map[redisTicket]int64)
	now := n.time()
	for key, v := range n.data {
		name, ok := strings.CutPrefix(key, "locker:{")
		if !ok || v.until != 0 && now/1000 > v.until {
			continue
		}
		name, side, _ := strings.Cut(name, "}")
		switch side {
		case "":
			if f := strings.Fields(strings.Replace(*v.text, "?", " ", 1)); len(f) > 2 {
				token, _ := strconv.ParseUint(f[2], 10, 64)
				held[redisTicket{name, token}] = v.until * 1000
			}
		case ":h", ":rh":
			ends := n.data["locker:{"+name+"}"+strings.Replace(side, "h", "e", 1)]
			for id, token := range v.zset {
				if ends != nil && ends.zset[id] > float64(now) {
					held[redisTicket{name, uint64(token)}] = int64(ends.zset[id])
				}
			}
		}
	}
	return held
}

// forget notes which leases are shorter than before, where they may be, and which are there again.
// Redlock has lost a lease when no majority has it. With mu held.
func (n *node) forget(before map[redisTicket]int64, may bool) {
	after := n.held()
	n.excuse.mu.Lock()
	defer n.excuse.mu.Unlock()
	for t, until := range before {
		if may && after[t] < until && (n.group == nil || !n.majority(t, after)) {
			n.excuse.forgot[t] = true
		}
	}
	for t := range after {
		if _, ok := before[t]; !ok {
			n.excuse.revived[t] = true
		}
	}
}

// majority reports whether most nodes have a ticket; here is what this one has. With mu held.
func (n *node) majority(t redisTicket, here map[redisTicket]int64) bool {
	count := 0
	for _, other := range n.group {
		held := here
		if other != n {
			held = other.held()
		}
		if _, ok := held[t]; ok {
			count++
		}
	}
	return count > len(n.group)/2
}

// forgotten reports whether the servers have lost a lease, or a part of it.
func (n *node) forgotten(name string, token uint64) bool {
	n.excuse.mu.Lock()
	defer n.excuse.mu.Unlock()
	return n.excuse.forgot[redisTicket{name, token}]
}

// remembered reports whether a ticket for a name has come back.
func (n *node) remembered(name string) bool {
	n.excuse.mu.Lock()
	defer n.excuse.mu.Unlock()
	for t := range n.excuse.revived {
		if t.name == name {
			return true
		}
	}
	return false
}

// revived reports whether a ticket has come back with old data.
func (n *node) revived(t redisTicket) bool {
	n.excuse.mu.Lock()
	defer n.excuse.mu.Unlock()
	return n.excuse.revived[t]
}

func (n *node) has(name string, token uint64) bool {
	t := redisTicket{name, token}
	revived := n.revived(t)
	n.mu.Lock()
	defer n.mu.Unlock()
	held := n.held()
	if n.group != nil {
		return !revived && n.majority(t, held)
	}
	_, ok := held[t]
	return ok && !revived
}

func (n *node) leftovers() (keys []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for key, v := range n.data {
		if v.until != 0 && n.time()/1000 > v.until {
			continue
		}
		switch key {
		case "locker:fence", "locker:fences", "locker:protocol", "locker:protocol:redlock":
		default:
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// client opens a client of a server, with the options that a URL gives it.
func (n *node) client(process string) (*redis.Client, *path) {
	p := newPath(n.s, process)
	return redis.NewClient(&redis.Options{
		Addr: n.s.name + ":6379", Protocol: 2, DialTimeout: 2 * time.Second, ReadTimeout: 3 * time.Second, WriteTimeout: 3 * time.Second,
		DialerRetries: 1, DialerRetryTimeout: 10 * time.Millisecond, PoolSize: 100, // a caller that waits for a connection gets a timer of another bubble
		ReadBufferSize:           4 << 10, // a third of what a run allocates was for buffers
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			return p.connect(n.link, splitRESP, greet)
		},
	}), p
}

// redisDriver is deeper in ownedRedis than what checks its answers.
type redisDriver struct{ *lockerredis.Driver }

// ownedRedis closes its client, as a driver does that is opened by URL.
type ownedRedis struct {
	*contract
	redisDriver
	client *redis.Client
}

func (d ownedRedis) Close() error {
	err := d.contract.Close()
	_ = d.client.Close()
	return err
}

func openRedis(s *server, process string) (driver.Driver, *path, error) {
	n := s.model.(*node)
	client, p := n.client(process)
	var opts []lockerredis.Option
	if n.waits {
		opts = append(opts, lockerredis.WithReplicas(1, time.Second))
	}
	d, err := lockerredis.New(client, opts...)
	return ownedRedis{&contract{w: s.w, m: n, d: d, process: process}, redisDriver{d}, client}, p, err
}

// redlockDriver is redisDriver for the nodes of Redlock.
type redlockDriver struct{ *redlock.Driver }

// ownedRedlock is ownedRedis for the nodes of Redlock.
type ownedRedlock struct {
	*contract
	redlockDriver
	clients []redis.UniversalClient
}

func (d ownedRedlock) Close() error {
	err := d.contract.Close()
	for _, c := range d.clients {
		_ = c.Close()
	}
	return err
}

func openRedlock(servers []*server, process string) (driver.Driver, []*path, error) {
	var clients []redis.UniversalClient
	var paths []*path
	for _, s := range servers {
		c, p := s.model.(*node).client(process)
		c.Options().MaxRetries = 0
		c.Options().DialTimeout = redlock.DefaultTimeout
		clients, paths = append(clients, c), append(paths, p)
	}
	d, err := redlock.New(clients)
	return ownedRedlock{&contract{w: servers[0].w, m: servers[0].model.(*node), d: d, process: process}, redlockDriver{d}, clients}, paths, err
}
