package consul_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/consul"
	"github.com/lockerproject/locker/internal/testbed"
)

// Concurrent callers share requests, and each gets its own part of the answer.
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
	t.Parallel()
	const names = 20
	addr := testbed.SharedConsul(t).Addr()
	d, w := tamper(t, addr)
	l := newLocker(t, d)
	defer release(t, acquire(t, l, t.Name())) // the session stays in use
	lost := errors.New("the connection was lost")
	var mu sync.Mutex
	var bodies [][]byte
	var late *http.Request
	withdrawn := make(map[string]bool) // the withdrawals that were answered
	shared := make(chan struct{})      // closed when such a request was seen
	var once sync.Once
	w.with(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path != "/v1/txn" {
			return nil, nil
		}
		body, _ := io.ReadAll(r.Body)
		if !bytes.Contains(body, []byte(`"get-tree"`)) { // no creation
			r.Body = io.NopCloser(bytes.NewReader(body))
			resp, err := w.RoundTripper.RoundTrip(r)
			if err == nil {
				mu.Lock()
				withdrawn[string(body)] = true
				mu.Unlock()
			}
			return resp, err
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
	await(t, names, "withdrawals", func() int { // most were answered before the calls returned
		mu.Lock()
		defer mu.Unlock()
		return len(withdrawn)
	})
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

// A shared transaction is refused because the session of one caller has ended: the others
// are served, and their locks are not lost.
func TestRefusedForOne(t *testing.T) {
	t.Parallel()
	addr := testbed.SharedConsul(t).Addr()
	admin := newClient(t, addr)
	d, w := tamper(t, addr)
	lost := make(chan error, 10)
	d.NotifyLoss(func(_ driver.Hold, cause error) { lost <- cause })
	held := get(t, d, request(t.Name()+"/held"))
	for range 50 {
		over := request(t.Name() + "/over")
		over.Wait, over.TTL = true, 20*time.Second
		h := get(t, d, over)
		session := sessionOf(t, admin, over.Name)
		drop(t, d, h)
		destroy(t, admin, session)
		if putTogether(t, d, w, session, over) {
			select {
			case cause := <-lost:
				t.Errorf("a lock of another session was lost: %v", cause)
			default:
			}
			drop(t, d, held)
			return
		}
	}
	t.Fatal("no transaction was shared: the test tests nothing")
}

// putTogether makes some callers acquire and release while two other requests are under
// way. It reports whether the caller whose session has ended shared a request.
func putTogether(t *testing.T, d *consul.Driver, w *tampered, session string, over driver.Request) bool {
	t.Helper()
	var together atomic.Bool
	var mu sync.Mutex
	var left []string // the others of the refused transaction, whose parts are to be sent again
	others := func(text string) []string {
		names := regexp.MustCompile(`other-[0-9]`).FindAllString(text, -1)
		slices.Sort(names)
		return slices.Compact(names)
	}
	arrived, proceed := make(chan struct{}, 100), make(chan struct{})
	w.with(func(r *http.Request) (*http.Response, error) {
		if r.URL.Path != "/v1/txn" {
			return nil, nil
		}
		text := body(r)
		creations := strings.Count(text, `"get-tree"`)
		mu.Lock()
		switch again := others(text); {
		case creations > 2 && strings.Contains(text, session):
			together.Store(true)
			left = again
		case slices.ContainsFunc(again, func(name string) bool { return slices.Contains(left, name) }):
			if !slices.Equal(again, left) {
				t.Errorf("the creations of %v were refused for another's, and the next request has those of %v", left, again)
			}
			left = nil
		}
		mu.Unlock()
		if creations > 0 {
			arrived <- struct{}{}
			<-proceed
		}
		return nil, nil
	})
	var group sync.WaitGroup
	cycle := func(r driver.Request) {
		group.Go(func() {
			g, err := d.Acquire(t.Context(), r)
			if err == nil {
				err = d.Release(t.Context(), r.Hold(g.Token))
			}
			if err != nil {
				t.Errorf("%s: %v", r.Name, err)
			}
		})
	}
	other := func(i int) driver.Request {
		r := request(fmt.Sprintf("%s/other-%d", t.Name(), i))
		r.Wait = true
		return r
	}
	for i := range 2 { // from now on other callers share
		cycle(other(i))
		<-arrived
	}
	for i := range 3 {
		cycle(other(2 + i))
	}
	cycle(over)
	<-arrived
	close(proceed)
	group.Wait()
	w.with(func(*http.Request) (*http.Response, error) { return nil, nil })
	return together.Load()
}

// Many readers of one name, which all read its queue, acquire and release at once.
func TestReadersAtOnce(t *testing.T) {
	t.Parallel()
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
