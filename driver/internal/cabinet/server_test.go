package cabinet_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker/conformance/link"
	"github.com/lockerproject/locker/internal/testbed"
)

// server is a Cabinet. Its proxy is how it fails: what it has is kept.
type server struct {
	*link.Proxy

	mu       sync.Mutex
	docs     map[string]kept
	began    time.Time
	revision uint64 // of the last write; one counter for all documents
}

type kept struct {
	Value    []byte `json:"value"`
	Revision uint64 `json:"revision"`
	until    time.Time
}

func newCabinet(t *testing.T) *server {
	t.Helper()
	c := &server{docs: make(map[string]kept), began: time.Now()}
	srv := httptest.NewServer(c)
	t.Cleanup(srv.Close)
	// On a port that no client gets while the server is down.
	c.Proxy = link.Listen(t, fmt.Sprintf("127.0.0.1:%d", testbed.Port(t)), srv.Listener.Addr().String())
	return c
}

// Kill, Start, Pause and Resume implement conformance.Server.
func (c *server) Kill()   { c.Refuse() }
func (c *server) Start()  { c.Heal() }
func (c *server) Pause()  { c.Cut() }
func (c *server) Resume() { c.Heal() }

// ServeHTTP answers one request.
func (c *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	value, err := io.ReadAll(r.Body)
	if err != nil {
		return // the client has gone in the middle of its request
	}
	if r.URL.Query().Has("clock") {
		_ = json.NewEncoder(w).Encode(map[string]any{"server": c.began.String(), "up": time.Since(c.began).Milliseconds()})
		return
	}
	if r.Method == http.MethodGet {
		_ = json.NewEncoder(w).Encode(c.get(r.URL.Query()["key"]))
		return
	}
	written, ok := c.put(r.URL.Query(), value)
	if !ok {
		w.WriteHeader(http.StatusPreconditionFailed)
		return
	}
	_ = json.NewEncoder(w).Encode(written)
}

func (c *server) get(keys []string) []kept {
	c.mu.Lock()
	defer c.mu.Unlock()
	docs := make([]kept, len(keys))
	for i, key := range keys {
		docs[i] = c.find(key)
	}
	return docs
}

// put writes a document, unless it is another one than the request asks for.
func (c *server) put(q url.Values, value []byte) (written kept, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	key := q.Get("key")
	if q.Has("if") && q.Get("if") != strconv.FormatUint(c.find(key).Revision, 10) {
		return written, false
	}
	keep, _ := strconv.Atoi(q.Get("keep"))
	c.revision++
	c.docs[key] = kept{value, c.revision, time.Now().Add(time.Duration(keep) * time.Second)}
	return kept{Revision: c.revision}, true
}

// find returns a document that is still kept. With mu held.
func (c *server) find(key string) kept {
	d := c.docs[key]
	if time.Now().After(d.until) {
		delete(c.docs, key)
		return kept{}
	}
	return d
}

// count counts the documents of a prefix.
func (c *server) count(prefix string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key := range c.docs {
		if strings.HasPrefix(key, prefix) && c.find(key).Revision > 0 {
			n++
		}
	}
	return n
}
