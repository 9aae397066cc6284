package consul

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/driver/internal/kvqueue"
)

// A listing does not say that a ticket has gone if it was read before the ticket was
// created, or shows the ticket, or an older one with its key.
func TestListingFromThePast(t *testing.T) {
	listed := &listing{index: 9, read: make(chan struct{}), pairs: map[string]*api.KVPair{
		"there": {Key: "there", Session: "s", CreateIndex: 5}, "again": {Key: "again", Session: "s", CreateIndex: 8},
		"unlocked": {Key: "unlocked", CreateIndex: 5},
	}}
	s := &store{opts: options{queryWait: 10 * time.Millisecond}}
	s.shared = sharedWatch{store: s, latest: listed, users: 1}
	for _, c := range []struct {
		key    string
		number uint64
		gone   bool
	}{
		{"there", 5, false},
		{"missing", 5, true},
		{"missing", 10, false},
		{"again", 5, true},
		{"unlocked", 5, true},
		{"unlocked", 10, false},
	} {
		notified := false
		what := kvqueue.Watching{Aim: kvqueue.Entry{Key: c.key, Number: c.number}}
		err := s.shared.watch(t.Context(), what, func(kvqueue.Event) { notified = true })
		if notified != c.gone || err != nil {
			t.Errorf("ticket %d at %q: gone %v, %v, want %v", c.number, c.key, notified, err, c.gone)
		}
	}
}

// The index of a queue goes back when Consul forgets deleted keys. A reading is complete
// as of the highest index of any earlier reading.
func TestIndexGoesBack(t *testing.T) {
	index := "100"
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("X-Consul-Index", index)
		_, _ = w.Write([]byte("[]"))
	}))
	defer srv.Close()
	client, err := api.NewClient(&api.Config{Address: srv.URL, HttpClient: srv.Client()})
	if err != nil {
		t.Fatal(err)
	}
	s := &store{client: client, keys: keyspace{prefix: "locker"}}
	for _, c := range []struct {
		index    string
		complete uint64
	}{{"100", 100}, {"50", 100}, {"101", 101}} {
		index = c.index
		if got, err := s.Read(t.Context(), "a"); err != nil || got.Complete != c.complete {
			t.Errorf("at index %s: complete as of %d, %v, want %d", index, got.Complete, err, c.complete)
		}
	}
}

// When another queue has changed, a queue in the shared watch is read again, once. Then
// it is known as of that change.
func TestAnotherQueueChanges(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		index := "50" // of this queue
		if strings.HasSuffix(r.URL.Path, "/~queue/") {
			index = "100" // of all
		}
		w.Header().Set("X-Consul-Index", index)
		_, _ = w.Write([]byte("[]"))
	}))
	defer srv.Close()
	client, err := api.NewClient(&api.Config{Address: srv.URL, HttpClient: srv.Client()})
	if err != nil {
		t.Fatal(err)
	}
	s := &store{client: client, keys: keyspace{prefix: "locker"}, opts: options{queryWait: 10 * time.Millisecond}}
	s.shared.store, s.engine = s, kvqueue.New(kvqueue.Options{Store: s})
	defer s.engine.Close()
	known, err := s.Read(t.Context(), "a")
	if err == nil {
		err = s.shared.watch(t.Context(), kvqueue.Watching{Name: "a", Complete: known.Complete}, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	if known, err = s.Read(t.Context(), "a"); err != nil || known.Complete != 100 {
		t.Errorf("after a watch that has seen 100 the queue is known as of %d (%v)", known.Complete, err)
	}
}
