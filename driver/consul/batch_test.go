package consul_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testbed"
)

// Concurrent callers share requests, and each gets what is its own.
func TestCallersShareRequests(t *testing.T) {
	const callers, each = 48, 20
	srv := testbed.SharedConsul(t)
	d, c := counted(t, srv.Addr())
	l := newLocker(t, d)
	release(t, acquire(t, l, t.Name()))
	before := c.n.Load()
	var group sync.WaitGroup
	for i := range callers {
		group.Go(func() {
			name, last := fmt.Sprintf("%s/%d", t.Name(), i), uint64(0)
			for range each {
				k, err := l.Acquire(t.Context(), name)
				if err != nil {
					t.Error(err)
					return
				}
				q, err := l.Inspect(t.Context(), name)
				if err != nil || len(q.Tickets) != 1 || q.Tickets[0].Token != k.Token() {
					t.Errorf("the queue of %s is %v, %v; want the token %d alone", name, q.Tickets, err, k.Token())
				}
				if k.Token() <= last {
					t.Errorf("token %d after %d", k.Token(), last)
				}
				last = k.Token()
				if err := k.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	const cycles = callers * each
	if per := float64(c.n.Load()-before)/cycles - 1; per > 1 { // one is Inspect's
		t.Errorf("%.2f requests for an acquire and a release, want them to share", per)
	}
}

// A shared request that is lost, and arrives after its callers have given up,
// does nothing for any of them.
func TestLateSharedCreation(t *testing.T) {
	const names = 20
	addr := testbed.SharedConsul(t).Addr()
	d, w := tamper(t, addr)
	l := newLocker(t, d)
	defer release(t, acquire(t, l, t.Name())) // the session stays in use
	lost := errors.New("the connection was lost")
	var mu sync.Mutex
	var bodies [][]byte
	var late *http.Request
	shared := make(chan struct{}) // closed when such a request was seen
	var once sync.Once
	w.with(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path != "/v1/txn" {
			return nil, nil
		}
		body, _ := io.ReadAll(r.Body)
		if !bytes.Contains(body, []byte(`"get-tree"`)) { // no creation
			r.Body = io.NopCloser(bytes.NewReader(body))
			return nil, nil
		}
		mu.Lock()
		bodies, late = append(bodies, body), r.Clone(context.Background())
		mu.Unlock()
		if bytes.Count(body, []byte(`"get-tree"`)) > 1 {
			once.Do(func() { close(shared) })
		}
		<-shared
		return nil, lost
	})
	var group sync.WaitGroup
	for i := range names {
		group.Go(func() {
			if _, err := l.Acquire(t.Context(), fmt.Sprintf("%s/%d", t.Name(), i)); !errors.Is(err, lost) {
				t.Errorf("Acquire: %v, want the lost connection", err)
			}
		})
	}
	group.Wait()
	w.with(func(*http.Request) (*http.Response, error) { return nil, nil })
	for _, body := range bodies {
		late.Body, late.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		resp, err := w.RoundTripper.RoundTrip(late)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusConflict {
			t.Errorf("a late transaction was answered with %s, want 409", resp.Status)
		}
	}
	if kvs := keysOf(t, newClient(t, addr), t.Name()); len(kvs) != 1 {
		t.Errorf("%d tickets are queued, want the one that is held", len(kvs))
	}
}

// Readers of one name, who all read its queue, may come and go at once.
func TestReadersAtOnce(t *testing.T) {
	l := newLocker(t, first(counted(t, testbed.SharedConsul(t).Addr())))
	var group sync.WaitGroup
	for range 32 {
		group.Go(func() {
			for range 10 {
				k, err := l.Acquire(t.Context(), t.Name(), locker.Shared())
				if err != nil {
					t.Error(err)
					return
				}
				if err := k.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
}
