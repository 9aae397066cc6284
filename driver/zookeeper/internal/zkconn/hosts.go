package zkconn

import (
	"context"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"
)

// Times of the search for a server.
const (
	clientPause = time.Second            // of the client, when Next asks for a pause
	lookupBound = 2 * time.Second        // for the addresses of all hosts
	steadyAfter = 200 * time.Millisecond // a session that was connected for this long is reconnected without a pause
)

// hosts decides which server the client tries next (zk.HostProvider). It resolves the
// names again at the beginning of each round, so that a server that has moved is found.
// The client's own provider resolves them once.
type hosts struct {
	names  []string // host:port, as the URL has them
	lookup func(ctx context.Context, host string) ([]string, error)
	life   context.Context // of the connection

	mu        sync.Mutex
	round     []string          // addresses that are still to be tried
	last      string            // the address that was given out last
	hostOf    map[string]string // by address: the host whose lookup returned it
	count     int               // addresses of the last lookup
	began     time.Time         // of the round
	connected time.Time         // of the last session; zero if there was none since the round began
}

func newHosts(life context.Context, names []string) *hosts {
	return &hosts{
		names: names, count: len(names), life: life,
		lookup: net.DefaultResolver.LookupHost,
		hostOf: make(map[string]string),
	}
}

// Init implements zk.HostProvider.
func (h *hosts) Init([]string) error { return nil }

// Len implements zk.HostProvider.
func (h *hosts) Len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.count
}

// Connected implements zk.HostProvider.
func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.connected = time.Now()
}

// Next implements zk.HostProvider. After a short round without a session the
// client pauses for a second, and fails the requests that wait to be sent. After
// a round of a second or more there is no pause. The client calls Next from one
// goroutine.
func (h *hosts) Next() (server string, pause bool) {
	if h.life.Err() != nil {
		return "", true // the client ends
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.last == "":
		h.round = h.resolve()
	case !h.connected.IsZero():
		// The connection was lost: begin with the other servers.
		pause = time.Since(h.connected) < steadyAfter
		h.round = h.resolve()
	case len(h.round) == 0:
		pause = time.Since(h.began) < clientPause
		h.round = h.resolve()
	}
	if pause {
		h.began = h.began.Add(clientPause)
	}
	h.connected = time.Time{}
	h.last, h.round = h.round[0], h.round[1:]
	return h.last, pause
}

// resolve returns the addresses of all hosts in a random order, the one that
// was tried last at the end. With mu held, but not during the lookup.
func (h *hosts) resolve() []string {
	h.mu.Unlock()
	found, hostOf := h.lookUp()
	h.mu.Lock()
	maps.Copy(h.hostOf, hostOf)
	rand.Shuffle(len(found), func(i, j int) { found[i], found[j] = found[j], found[i] })
	if i := slices.Index(found, h.last); i >= 0 {
		found = append(slices.Delete(found, i, i+1), h.last)
	}
	h.count, h.began = len(found), time.Now()
	return found
}

// lookUp returns the addresses of all hosts, and the host of each. If the lookup of a
// host fails, the client tries its name, so that the caller gets the lookup's error.
func (h *hosts) lookUp() (found []string, hostOf map[string]string) {
	ctx, cancel := context.WithTimeout(h.life, lookupBound)
	defer cancel()
	hostOf = make(map[string]string)
	for _, name := range h.names {
		host, port, err := net.SplitHostPort(name)
		if err != nil {
			host = name
		}
		addrs, err := h.lookup(ctx, host)
		if err != nil || len(addrs) == 0 {
			addrs = []string{host}
		}
		for _, addr := range addrs {
			addr = net.JoinHostPort(addr, port)
			if !slices.Contains(found, addr) {
				found = append(found, addr)
			}
			hostOf[addr] = host
		}
	}
	return found, hostOf
}

// host returns the host whose lookup returned an address.
func (h *hosts) host(addr string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.hostOf[addr]
}
