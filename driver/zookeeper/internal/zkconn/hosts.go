package zkconn

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"time"
)

// Times of the search for a server.
const (
	clientPause = time.Second            // of the client, when Next asks for a pause
	steadyAfter = 200 * time.Millisecond // a session that was connected for this long is reconnected without a pause
)

// hosts decides which server the client tries next (zk.HostProvider): one after the other, in
// a random order. They are resolved when they are dialled, so that a server that has moved is
// found. The client's own provider resolves them once.
type hosts struct {
	names []string        // host:port
	life  context.Context // of the connection
	start chan struct{}   // closed when the client may begin

	mu        sync.Mutex
	next      int       // index
	left      int       // how many are still to be tried in this round
	began     time.Time // of the round
	connected time.Time // of the last session; zero if there was none since the last try
}

func newHosts(life context.Context, names []string) *hosts {
	names = slices.Clone(names)
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	return &hosts{names: names, life: life, start: make(chan struct{}), left: len(names), began: time.Now()}
}

// Init implements zk.HostProvider.
func (h *hosts) Init([]string) error { return nil }

// Len implements zk.HostProvider.
func (h *hosts) Len() int { return len(h.names) }

// Connected implements zk.HostProvider.
func (h *hosts) Connected() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.connected = time.Now()
}

// Next implements zk.HostProvider. After a short round without a session the client pauses
// for a second, and fails the requests that wait to be sent. After a round of a second or
// more there is no pause, nor after a session, which the other servers are tried for first.
func (h *hosts) Next() (server string, pause bool) {
	select {
	case <-h.start:
	case <-h.life.Done():
	}
	if h.life.Err() != nil {
		return "", true // the client ends
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	lost := !h.connected.IsZero()
	if lost || h.left == 0 {
		since, least := h.began, clientPause
		if lost {
			since, least = h.connected, steadyAfter
		}
		pause = time.Since(since) < least
		h.left, h.began, h.connected = len(h.names), time.Now(), time.Time{}
		if pause {
			h.began = h.began.Add(clientPause)
		}
	}
	server = h.names[h.next]
	h.next = (h.next + 1) % len(h.names)
	h.left--
	return server, pause
}
