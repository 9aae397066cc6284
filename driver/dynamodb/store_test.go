package dynamodb_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/dynamodb"
	"github.com/lockerproject/locker/internal/testbed"
)

// shifted changes the time of all answers.
func shifted(by time.Duration) func(string, []byte, func() (*http.Response, error)) (*http.Response, error) {
	return func(_ string, _ []byte, send func() (*http.Response, error)) (*http.Response, error) {
		r, err := send()
		if err == nil {
			r.Header.Set("Date", time.Now().Add(by).UTC().Format(http.TimeFormat))
		}
		return r, err
	}
}

var errCut = errors.New("the connection was cut")

// sentTwice fails if a write was sent twice: each write of the driver has a version of its own.
func sentTwice(t *testing.T, writes []string) {
	t.Helper()
	slices.Sort(writes)
	if len(slices.Compact(writes)) != len(writes) {
		t.Errorf("of %d writes some are the same", len(writes))
	}
}

// The SDK does not send a write again whose answer was lost: it would take its own work for another process's. The
// driver finds out what happened, and the ticket is queued once.
func TestAnswerLost(t *testing.T) {
	t.Parallel()
	d, w := made(t, testbed.SharedDynamoDB(t), dynamodb.WithPrefix(unique("lost")))
	if err := d.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	lost := 0
	var ops, writes []string
	w.does(func(op string, body []byte, send func() (*http.Response, error)) (*http.Response, error) {
		ops = append(ops, op)
		if op == "PutItem" {
			writes = append(writes, string(body))
		}
		r, err := send()
		if err == nil && op == "PutItem" && lost == 0 {
			lost++
			_ = r.Body.Close()
			return nil, errCut
		}
		return r, err
	})
	g, err := d.Acquire(t.Context(), request("n", "a"))
	if err != nil {
		t.Fatal(err)
	}
	// A reading, the write, another one that fails, the reading that finds the first, and the write that begins the
	// lease anew.
	if want := "BatchGetItem PutItem PutItem BatchGetItem PutItem"; strings.Join(ops, " ") != want {
		t.Errorf("the requests are %q, want %q", ops, want)
	}
	sentTwice(t, writes)
	w.does(nil)
	if queue, err := d.Inspect(t.Context(), "n"); err != nil || len(queue) != 1 || queue[0].Token != g.Token {
		t.Errorf("the queue is %v, %v", queue, err)
	}
}

// A write that was done before its connection was lost is not sent again, neither by the SDK nor by net/http, which may
// repeat a request on a connection that was in use before.
func TestConnectionLost(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedDynamoDB(t)
	onward := new(http.Transport)
	t.Cleanup(onward.CloseIdleConnections)
	server := httputil.ReverseProxy{Transport: onward, Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(&url.URL{Scheme: "http", Host: srv.Addr()}) }}
	var mu sync.Mutex
	var writes []string
	lose := false
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		mu.Lock()
		lost := false
		if strings.HasSuffix(r.Header.Get("X-Amz-Target"), ".PutItem") {
			writes = append(writes, string(body))
			lost, lose = lose, false
		}
		mu.Unlock()
		if lost {
			server.ServeHTTP(httptest.NewRecorder(), r)
			panic(http.ErrAbortHandler)
		}
		server.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	d, err := open(t.Context(), strings.Replace(srv.URL(), srv.Addr(), front.Listener.Addr().String(), 1)+"&prefix="+unique("connection")+"&timeout="+patience.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	if err := d.(driver.Pinger).Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	writes, lose = nil, true
	mu.Unlock()
	r := request("n", "a")
	g, err := d.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	if len(writes) != 3 {
		t.Errorf("%d writes, want the first, one that fails because of it, and one that begins the lease anew", len(writes))
	}
	sentTwice(t, writes)
	mu.Unlock()
	if err := d.Release(t.Context(), r.Hold(g.Token)); err != nil {
		t.Error(err)
	}
}

// Ping fails without the right to write, and without the right to read.
func TestRights(t *testing.T) {
	t.Parallel()
	d, w := made(t, testbed.SharedDynamoDB(t), dynamodb.WithPrefix(unique("rights")))
	if err := d.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, right := range []string{"PutItem", "BatchGetItem"} {
		w.does(func(op string, _ []byte, send func() (*http.Response, error)) (*http.Response, error) {
			if op == right {
				return refusal(400, "AccessDeniedException")
			}
			return send()
		})
		if err := d.Ping(t.Context()); err == nil || driver.IsUnavailable(err) || !strings.Contains(err.Error(), "AccessDenied") {
			t.Errorf("without the right to %s: %v", right, err)
		}
	}
}

// A write that something on the way sends twice is done, although DynamoDB answers that the item has changed.
func TestSentTwice(t *testing.T) {
	t.Parallel()
	d, w := made(t, testbed.SharedDynamoDB(t), dynamodb.WithPrefix(unique("twice")))
	twice := 0
	w.does(func(op string, _ []byte, send func() (*http.Response, error)) (*http.Response, error) {
		r, err := send()
		if err == nil && op == "PutItem" {
			twice++
			_ = r.Body.Close()
			return send()
		}
		return r, err
	})
	r := request("n", "a")
	g, err := d.Acquire(t.Context(), r)
	if err == nil {
		err = d.Release(t.Context(), r.Hold(g.Token))
	}
	if err != nil || twice != 2 || w.count("BatchGetItem") != 1 {
		t.Errorf("%v; %d writes and %d readings, want 2 and 1", err, twice, w.count("BatchGetItem"))
	}
}

// batch is what a request asks for, or what an answer leaves out.
type batch map[string]struct {
	Keys           []json.RawMessage
	ConsistentRead bool
}

// partly has the server answer only for the first keys of a request, as many as share returns.
func partly(share func(n int) int) func(string, []byte, func() (*http.Response, error)) (*http.Response, error) {
	return func(op string, body []byte, send func() (*http.Response, error)) (*http.Response, error) {
		var in struct{ RequestItems batch }
		if err := json.Unmarshal(body, &in); err != nil || op != "BatchGetItem" {
			return send()
		}
		keys := in.RequestItems["locker"].Keys
		n := share(len(keys))
		r, err := send()
		if err != nil || n == len(keys) {
			return r, err
		}
		var out struct {
			Responses       map[string][]json.RawMessage
			UnprocessedKeys batch
		}
		if err := json.NewDecoder(r.Body).Decode(&out); err != nil {
			return nil, err
		}
		_ = r.Body.Close()
		left := in.RequestItems["locker"]
		left.Keys = keys[n:]
		out.UnprocessedKeys = batch{"locker": left}
		var kept []json.RawMessage
		for _, item := range out.Responses["locker"] { // not those that are left out
			if !mentioned(left.Keys, item) {
				kept = append(kept, item)
			}
		}
		out.Responses["locker"] = kept
		answer, err := json.Marshal(out)
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(answer)), int64(len(answer))
		r.Header.Del("X-Amz-Crc32")
		return r, err
	}
}

// mentioned reports whether an item has one of the keys.
func mentioned(keys []json.RawMessage, item json.RawMessage) bool {
	var i struct{ ID struct{ S string } }
	_ = json.Unmarshal(item, &i)
	for _, key := range keys {
		var k struct{ ID struct{ S string } }
		_ = json.Unmarshal(key, &k)
		if k.ID.S == i.ID.S {
			return true
		}
	}
	return false
}

// Get reads more items than one request may ask for, also those that the server leaves out at first, all consistently.
func TestManyItems(t *testing.T) {
	t.Parallel()
	const n = 230
	d, w := made(t, testbed.SharedDynamoDB(t), dynamodb.WithPrefix(unique("many")))
	renewals := make([]driver.Renewal, n)
	for i := range renewals {
		r := request(fmt.Sprint("n", i), fmt.Sprint("id", i))
		r.TTL = time.Minute // the first is still held when the last is acquired
		g, err := d.Acquire(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		renewals[i] = driver.Renewal{Hold: r.Hold(g.Token), TTL: r.TTL}
	}
	renew := func() error { return errors.Join(d.RenewAll(t.Context(), renewals)...) }
	before := w.count("BatchGetItem")
	if err := renew(); err != nil || w.count("BatchGetItem")-before != 3 {
		t.Errorf("%d requests, %v", w.count("BatchGetItem")-before, err)
	}
	w.does(partly(func(n int) int { return (n + 1) / 2 }))
	before = w.count("BatchGetItem")
	if err := renew(); err != nil || w.count("BatchGetItem")-before < 15 {
		t.Errorf("half of the items at a time: %d requests, %v", w.count("BatchGetItem")-before, err)
	}
	w.does(partly(func(int) int { return 0 }))
	if err := renew(); !driver.IsUnavailable(err) || errors.Is(err, driver.ErrLost) {
		t.Errorf("no item: %v", err)
	}
	w.does(partly(func(n int) int { return n - 1 }))
	failed := 0
	for _, err := range d.RenewAll(t.Context(), renewals) {
		if err != nil {
			failed++
		}
		if err != nil && (!driver.IsUnavailable(err) || errors.Is(err, driver.ErrLost)) {
			t.Errorf("an item that is not read: %v", err)
		}
	}
	if failed != 3 {
		t.Errorf("%d renewals failed, want one for each request whose last item is not read", failed)
	}
	w.does(nil)
	if err := renew(); err != nil {
		t.Error(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, body := range w.bodies {
		var in struct{ RequestItems batch }
		if err := json.Unmarshal([]byte(body), &in); err != nil || !in.RequestItems["locker"].ConsistentRead || len(in.RequestItems["locker"].Keys) > 100 {
			t.Fatalf("not a consistent reading of at most 100 items (%v): %s", err, body)
		}
	}
}
