package sim

import (
	"encoding/binary"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/internal/testbed"
)

// zkStore is a server, or the model, with two clients.
type zkStore struct {
	connect func(client int, heard zk.EventCallback) (*zk.Conn, <-chan zk.Event, error)
	reset   func(client int)
	conns   [2]*zk.Conn
	events  [2]chan zk.Event
	watched [2]chan struct{} // the client has set its watches again
	base    int64            // numbers of transactions count from this one
}

// dialer is a dialer that tells when a client has set its watches again.
func (s *zkStore) dialer(client int, dial zk.Dialer) zk.Dialer {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := dial(network, address, timeout)
		return &watchedConn{Conn: conn, watched: s.watched[client]}, err
	}
}

// watchedConn is a connection of a client that sends each request with one call of Write, and reads the
// length of an answer by itself.
type watchedConn struct {
	net.Conn
	asked   atomic.Uint32 // the number of the request that sets watches; 0: none
	watched chan struct{}
}

func (c *watchedConn) Write(p []byte) (int, error) {
	if len(p) >= 12 && binary.BigEndian.Uint32(p[8:]) == zkSetWatches {
		c.asked.Store(binary.BigEndian.Uint32(p[4:]))
	}
	return c.Conn.Write(p)
}

func (c *watchedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 4 && binary.BigEndian.Uint32(p) == c.asked.Load() && c.asked.Swap(0) != 0 {
		c.watched <- struct{}{}
	}
	return n, err
}

func (s *zkStore) open(t *testing.T, client int) {
	events := make(chan zk.Event, 1000)
	s.events[client], s.watched[client] = events, make(chan struct{}, 10)
	var err error
	if s.conns[client], _, err = s.connect(client, func(ev zk.Event) { events <- ev }); err != nil {
		t.Fatal(err)
	}
	s.wait(client)
}

// wait waits until a client has a session.
func (s *zkStore) wait(client int) {
	for ev := range s.events[client] {
		if ev.State == zk.StateHasSession {
			return
		}
	}
}

// stat is what a server says of a node, but for times and sessions.
func (s *zkStore) stat(st *zk.Stat) string {
	if st == nil {
		return "none"
	}
	return fmt.Sprint(st.Czxid-s.base, st.Mzxid-s.base, st.Pzxid-s.base, st.Version, st.Cversion, st.NumChildren, st.DataLength, st.EphemeralOwner != 0)
}

// did is what has become of a step: the answer, and what the clients have heard.
func (s *zkStore) did(t *testing.T, what string, client int, path string, ops []any) (out string, events []string) {
	c := s.conns[client]
	var st *zk.Stat
	var err error
	switch what {
	case "multi":
		var res []zk.MultiResponse
		res, err = c.Multi(ops...)
		for _, r := range res {
			out += fmt.Sprint(" ", r.String, s.stat(r.Stat), r.Error)
		}
	case "exists":
		var ok bool
		if ok, st, err = c.Exists(path); !ok {
			st = nil
		}
	case "get":
		var data []byte
		data, st, err = c.Get(path)
		out = string(data)
	case "watch":
		_, st, _, err = c.GetW(path)
	case "children":
		var names []string
		names, st, _, err = c.ChildrenW(path)
		slices.Sort(names)
		out = strings.Join(names, " ")
	case "close":
		c.Close()
		s.open(t, client)
	case "reset":
		if _, _, _, err = c.GetW("/t"); err == nil { // so that there is a watch to set again
			s.reset(client)
			s.wait(client)
			<-s.watched[client]
		}
	}
	if err == nil && st != nil {
		out += " " + s.stat(st)
	}
	return fmt.Sprint(out, " ", err), s.heard(t)
}

// heard are the events of both clients so far.
func (s *zkStore) heard(t *testing.T) (all []string) {
	for i, c := range s.conns {
		if _, err := c.Sync("/t"); err != nil {
			t.Fatal(err)
		}
		for len(s.events[i]) > 0 {
			if ev := <-s.events[i]; ev.Type > 0 {
				all = append(all, fmt.Sprint(i, ev.Type, ev.Path))
			}
		}
	}
	slices.Sort(all)
	return all
}

// zkLine is a connection to a real server that can be broken.
type zkLine struct {
	mu   sync.Mutex
	conn net.Conn
}

func (l *zkLine) dial(network, address string, timeout time.Duration) (net.Conn, error) {
	conn, err := net.DialTimeout(network, address, timeout)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.conn = conn
	return conn, err
}

func (l *zkLine) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.conn.Close()
}

// zkReal is a real server.
func zkReal(t *testing.T) *zkStore {
	s, addr, lines := new(zkStore), testbed.Zookeeper(t).Addr(), [2]zkLine{}
	*s = zkStore{
		connect: func(i int, heard zk.EventCallback) (*zk.Conn, <-chan zk.Event, error) {
			return zk.Connect([]string{addr, addr}, 10*time.Second, zk.WithDialer(s.dialer(i, lines[i].dial)), zk.WithEventCallback(heard), zk.WithLogger(new(zkWay)), zk.WithLogInfo(false))
		},
		reset: func(i int) { lines[i].cut() },
	}
	return s
}

// zkModel is the model, in real time.
func zkModel() *zkStore {
	w := &world{seed: 1, begun: time.Now(), used: make(map[int64]bool), names: make(map[string]string)}
	model := &server{w: w, name: "model"}
	z := newEnsemble(model)
	model.model = z
	s, paths := new(zkStore), [2]*path{}
	*s = zkStore{
		connect: func(i int, heard zk.EventCallback) (*zk.Conn, <-chan zk.Event, error) {
			paths[i] = newPath(model, fmt.Sprint("p", i))
			paths[i].usual = 100 * time.Microsecond
			leader := z.join(paths[i])[0]
			way := &zkWay{z, paths[i], []*zkMember{leader, leader}, 0, -1} // the client pauses when it comes to the same again
			return zk.Connect([]string{model.name}, 10*time.Second, zk.WithDialer(s.dialer(i, way.dial)), zk.WithHostProvider(way), zk.WithEventCallback(heard), zk.WithLogger(way), zk.WithLogInfo(false))
		},
		reset: func(i int) { paths[i].reset() },
	}
	return s
}

// The model does what a server does: it gives the same answers, numbers and versions, and reports the same events.
func TestModelOfZooKeeper(t *testing.T) {
	if raced {
		t.Skip("the client reads the number of the last transaction without a lock when it connects again")
	}
	stores := []*zkStore{zkReal(t), zkModel()}
	for _, s := range stores {
		s.open(t, 0)
		s.open(t, 1)
		defer s.conns[0].Close()
		defer s.conns[1].Close()
		if _, err := s.conns[0].Multi(&zk.CreateRequest{Path: "/t", Data: []byte{}, Acl: zk.WorldACL(zk.PermAll)}); err != nil {
			t.Fatal(err)
		}
		_, st, err := s.conns[0].Exists("/t")
		if err != nil {
			t.Fatal(err)
		}
		s.base = st.Czxid
	}
	rnd := newStream(uint64(time.Now().UnixNano()), "requests") //nolint:gosec // any seed
	paths := []string{"/t/a", "/t/b", "/t/a/x0000000000", "/t/a/x0000000001", "/t/a/x0000000002", "/t/b/x0000000000", "/t/a/y"}
	for i := range 200 {
		what := pick(rnd, "multi", "multi", "multi", "multi", "exists", "get", "watch", "watch", "children", "children")
		if rnd.one(20) {
			what = pick(rnd, "close", "reset", "reset")
		}
		client, path, ops := rnd.n(2), pick(rnd, paths...), []any(nil)
		for range 1 + rnd.n(3) {
			path, version := pick(rnd, paths...), int32(rnd.n(5)-3) //nolint:gosec // small
			ops = append(ops, pick(rnd, []any{
				&zk.CreateRequest{Path: path, Data: []byte("c"), Acl: zk.WorldACL(zk.PermAll)},
				&zk.CreateRequest{Path: pick(rnd, "/t/a/x", "/t/b/x"), Data: []byte{}, Acl: zk.WorldACL(zk.PermAll), Flags: zk.FlagEphemeralSequential},
				&zk.CreateRequest{Path: pick(rnd, "/t/a", "/t/b"), Data: []byte{}, Acl: zk.WorldACL(zk.PermAll)},
				&zk.SetDataRequest{Path: path, Data: []byte("ab"), Version: version},
				&zk.DeleteRequest{Path: path, Version: version},
				&zk.CheckVersionRequest{Path: path, Version: version},
			}...))
		}
		want, events := stores[0].did(t, what, client, path, ops)
		got, ofModel := stores[1].did(t, what, client, path, ops)
		// In real time an answer of the model may overtake an event that was sent before it.
		for late := time.Now().Add(5 * time.Second); len(ofModel) < len(events) && time.Now().Before(late); time.Sleep(time.Millisecond) {
			ofModel = append(ofModel, stores[1].heard(t)...)
			slices.Sort(ofModel)
		}
		if what == "multi" {
			path = ""
			for _, op := range ops {
				path += fmt.Sprintf(" %T%.60v", op, op)
			}
		}
		if want != got || !slices.Equal(events, ofModel) {
			t.Fatalf("%d: %s %d %s: the server: %s %s; the model: %s %s", i, what, client, path, want, events, got, ofModel)
		}
	}
}
