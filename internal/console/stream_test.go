package console

import (
	"net/http"
	"testing"
	"time"

	"github.com/lockerproject/locker"
)

func TestStream(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{}, Store{"other", &fake{}})
	first := b.acquire("a", locker.WithOwner("one"), locker.WithNote("why"))
	b.login()
	stream := b.stream()
	h := stream.hello()
	if len(h.Stores) != 2 || h.Buckets != numBuckets {
		t.Errorf("hello %+v", h)
	}
	stream.queueIs("a", func(q *queueView) bool {
		return q.Holders == 1 && q.Tickets[0].Owner == "one" && q.Tickets[0].Note == "why" && q.Tickets[0].Ends > h.Now
	})
	second := make(chan *locker.Lock, 1)
	go func() {
		l, _ := b.locks.Acquire(t.Context(), "a", locker.WithOwner("two"), locker.WithoutReentry())
		second <- l
	}()
	stream.queueIs("a", func(q *queueView) bool { return q.Waiters == 1 && q.Oldest > 0 && q.Tickets[1].Owner == "two" })
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	stream.queueIs("a", func(q *queueView) bool { return q.Waiters == 0 && q.Tickets[0].Owner == "two" && q.Grants == 1 })
	if err := (<-second).Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	stream.queueIs("a", func(q *queueView) bool { return q.Free > 0 })
	if got, want := kinds(b.con.stores[0].history("a").Events), "queued two, released one, granted two, released two"; got != want {
		t.Errorf("events %q, want %q", got, want)
	}
}

// eventually waits for something that nothing tells of.
func eventually(t *testing.T, what string, f func() bool) {
	t.Helper()
	for until := time.Now().Add(20 * time.Second); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestStreamEndsWithItsClient(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{})
	b.login()
	stream := b.stream()
	stream.hello()
	st := b.con.stores[0]
	viewers := func() int {
		st.mu.Lock()
		defer st.mu.Unlock()
		return len(st.viewers)
	}
	if viewers() != 1 {
		t.Fatalf("%d viewers with a stream open", viewers())
	}
	stream.close()
	eventually(t, "the stream's handler has ended", func() bool { return viewers() == 0 && len(b.con.streams) == 0 })
}

func TestStreamEndsWithTheConsole(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{})
	b.login()
	stream := b.stream()
	stream.hello()
	b.con.Close()
	for kind, _, ok := stream.next(); ok; kind, _, ok = stream.next() {
		if kind == "bye" {
			t.Error("the page is sent to the login of a console that is gone")
		}
	}
	if err := stream.lines.Err(); err != nil {
		t.Errorf("the stream was not ended by the console: %v", err)
	}
	b.con.Close() // a second one does nothing
}

func TestTooManyStreams(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{})
	b.login()
	for range maxStreams {
		b.con.streams <- struct{}{}
	}
	if res, _ := b.request(http.MethodGet, "/api/events", ""); res.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("one stream too many: %s", res.Status)
	}
}
