package consul_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
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

// tampered is a connection to Consul on which a test may answer requests itself. If
// the test answers nil, the request passes.
type tampered struct {
	http.RoundTripper
	answer atomic.Pointer[func(r *http.Request) (*http.Response, error)]
}

func (w *tampered) RoundTrip(r *http.Request) (*http.Response, error) {
	if answer := w.answer.Load(); answer != nil {
		if resp, err := (*answer)(r); resp != nil || err != nil {
			return resp, err
		}
	}
	return w.RoundTripper.RoundTrip(r)
}

func (w *tampered) with(answer func(r *http.Request) (*http.Response, error)) {
	w.answer.Store(&answer)
}

func reply(r *http.Request, status int, body string, header ...string) (*http.Response, error) {
	resp := &http.Response{
		StatusCode: status, Request: r, Header: make(http.Header),
		Body: io.NopCloser(strings.NewReader(body)),
	}
	for i := 0; i < len(header); i += 2 {
		resp.Header.Set(header[i], header[i+1])
	}
	return resp, nil
}

func tamper(t testing.TB, addr string) (*consul.Driver, *tampered) {
	t.Helper()
	w := &tampered{RoundTripper: newTransport(t)}
	return driverOver(t, addr, w), w
}

// The creation of a ticket arrives after its caller has given up, and after its
// release: the ticket is not queued.
func TestLateCreation(t *testing.T) {
	t.Parallel()
	addr := testbed.SharedConsul(t).Addr()
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprintf("session in use %v", busy), func(t *testing.T) {
			d, w := tamper(t, addr)
			l := newLocker(t, d)
			release(t, acquire(t, l, t.Name())) // makes the session
			if busy {
				defer release(t, acquire(t, l, t.Name()+"/other"))
			}
			var late *http.Request
			var body []byte
			var once, withdrawn sync.Once
			answered := make(chan struct{}) // closed when the withdrawal was
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w.with(func(r *http.Request) (*http.Response, error) {
				if r.URL.Path != "/v1/txn" {
					return nil, nil
				}
				first := false
				once.Do(func() { first = true })
				if !first {
					resp, err := w.RoundTripper.RoundTrip(r)
					if err == nil {
						withdrawn.Do(func() { close(answered) })
					}
					return resp, err
				}
				body, _ = io.ReadAll(r.Body)
				late = r.Clone(context.Background())
				cancel()
				<-r.Context().Done()
				return nil, r.Context().Err()
			})
			if _, err := l.Acquire(ctx, t.Name()); !errors.Is(err, context.Canceled) {
				t.Fatalf("Acquire: %v, want Canceled", err)
			}
			if !bytes.Contains(body, []byte(`"lock"`)) {
				t.Fatalf("held back %s, want the transaction that creates the ticket", body)
			}
			<-answered // most likely before the call returned
			late.Body = io.NopCloser(bytes.NewReader(body))
			resp, err := w.RoundTripper.RoundTrip(late)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusConflict {
				t.Errorf("the late transaction was answered with %s, want 409", resp.Status)
			}
			if kvs := keysOf(t, newClient(t, addr), t.Name()); len(kvs) > 0 {
				t.Errorf("a ticket is queued: %s", kvs[0].Key)
			}
			release(t, acquire(t, l, t.Name()))
		})
	}
}

// A release that arrives late does not remove the next ticket, which has the same key.
func TestLateRelease(t *testing.T) {
	t.Parallel()
	addr := testbed.SharedConsul(t).Addr()
	d, w := tamper(t, addr)
	l := newLocker(t, d)
	k := acquire(t, l, t.Name())
	key := keysOf(t, newClient(t, addr), t.Name())[0].Key
	var late *http.Request
	var body []byte
	w.with(func(r *http.Request) (*http.Response, error) {
		if late == nil && r.URL.Path == "/v1/txn" {
			body, _ = io.ReadAll(r.Body)
			late = r.Clone(context.Background())
			return nil, io.ErrUnexpectedEOF
		}
		return nil, nil
	})
	release(t, k) // the second try does it
	if !bytes.Contains(body, []byte(`"delete"`)) {
		t.Fatalf("held back %s, want the transaction that deletes the ticket", body)
	}
	for range 20 { // until the key is in use again
		k = acquire(t, l, t.Name())
		if keysOf(t, newClient(t, addr), t.Name())[0].Key == key {
			break
		}
		release(t, k)
	}
	late.Body = io.NopCloser(bytes.NewReader(body))
	resp, err := w.RoundTripper.RoundTrip(late)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	kvs := keysOf(t, newClient(t, addr), t.Name())
	if len(kvs) != 1 || kvs[0].Key != key || kvs[0].CreateIndex != k.Token() {
		t.Fatalf("after the late release the queue is %+v, want the ticket %d at %q", kvs, k.Token(), key)
	}
	release(t, k)
}

// An answer that the holder has gone does not count if the server does not know of
// the holder yet.
func TestServerFromThePast(t *testing.T) {
	t.Parallel()
	addr := testbed.SharedConsul(t).Addr()
	l := newLocker(t, first(counted(t, addr)))
	k := acquire(t, l, t.Name())
	d, w := tamper(t, addr)
	var lies atomic.Int64
	w.with(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet && strings.Contains(r.URL.Path, t.Name()) && r.URL.Query().Has("index") {
			if lies.Add(1) <= 5 {
				return reply(r, http.StatusNotFound, "", "X-Consul-Index", "1", "X-Consul-LastContact", "0")
			}
		}
		return nil, nil
	})
	other := newLocker(t, d)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := other.Acquire(ctx, t.Name()); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("Acquire of a held lock: %v, want DeadlineExceeded", err)
	}
	if lies.Load() == 0 {
		t.Fatal("no blocking query was asked")
	}
	release(t, k)
}

// A leader that has not read its log yet does not know the session. That is no
// loss.
func TestServerNotReady(t *testing.T) {
	t.Parallel()
	d, w := tamper(t, testbed.SharedConsul(t).Addr())
	l := newLocker(t, d)
	k := acquire(t, l, t.Name(), locker.WithTTL(10*time.Second))
	defer release(t, k)
	w.with(func(r *http.Request) (*http.Response, error) {
		if strings.HasPrefix(r.URL.Path, "/v1/session/renew/") {
			return reply(r, http.StatusNotFound, "Session id not found")
		}
		return nil, nil
	})
	err := d.Renew(t.Context(), driver.Hold{Name: t.Name(), ID: idOf(t, d, t.Name()), Token: k.Token()}, 10*time.Second)
	if err == nil || errors.Is(err, driver.ErrLost) {
		t.Errorf("Renew: %v, want an error that is not ErrLost", err)
	}
	w.with(func(*http.Request) (*http.Response, error) { return nil, nil })
	if err := k.Err(); err != nil {
		t.Error(err)
	}
}

// An acquisition whose session such a leader does not know asks again.
func TestAcquireFromServerNotReady(t *testing.T) {
	t.Parallel()
	d, w := tamper(t, testbed.SharedConsul(t).Addr())
	drop(t, d, get(t, d, request(t.Name()))) // makes the session
	var asked atomic.Int64
	w.with(func(r *http.Request) (*http.Response, error) {
		if strings.HasPrefix(r.URL.Path, "/v1/session/renew/") && asked.Add(1) == 1 {
			return reply(r, http.StatusNotFound, "Session id not found")
		}
		return nil, nil
	})
	r := request(t.Name())
	r.Renewed = false // its lease begins with a keep-alive
	drop(t, d, get(t, d, r))
	if asked.Load() < 2 {
		t.Errorf("%d keep-alives, want another one after the refusal", asked.Load())
	}
}

// A deposed leader does not know a ticket yet, or still knows one that was broken. Neither is believed.
func TestDeposedLeaderIsNotBelieved(t *testing.T) {
	t.Parallel()
	addr := testbed.SharedConsul(t).Addr()
	for what, broken := range map[string]bool{"before the ticket": false, "before a break": true} {
		t.Run(what, func(t *testing.T) {
			d, w := tamper(t, addr)
			h := get(t, d, request(t.Name()))
			old := `{"Results":[{"KV":{}}]}`
			if broken {
				kv := keysOf(t, newClient(t, addr), t.Name())[0]
				old = fmt.Sprintf(`{"Results":[{"KV":{"Key":%q,"CreateIndex":%d,"ModifyIndex":%d,"Session":%q}}]}`,
					kv.Key, kv.CreateIndex, kv.ModifyIndex, kv.Session)
				if err := first(counted(t, addr)).Break(t.Context(), h.Name, h.Token); err != nil {
					t.Fatal(err)
				}
			}
			w.with(func(r *http.Request) (*http.Response, error) {
				if strings.HasPrefix(body(r), `[{"KV":{"Verb":"get-or-empty"`) && !r.URL.Query().Has("consistent") {
					return reply(r, http.StatusOK, old)
				}
				return nil, nil
			})
			if err := d.Renew(t.Context(), h, 15*time.Second); errors.Is(err, driver.ErrLost) != broken || err != nil && !broken {
				t.Errorf("a renewal of a ticket that was broken (%v): %v", broken, err)
			}
		})
	}
}

func idOf(t testing.TB, d driver.Driver, name string) string {
	t.Helper()
	queue, err := d.Inspect(t.Context(), name)
	if err != nil || len(queue) == 0 {
		t.Fatalf("queue %v, %v", queue, err)
	}
	return queue[0].ID
}

// A rate limit and an election are waited out, with few requests.
func TestAgentBusy(t *testing.T) {
	t.Parallel()
	for status, body := range map[int]string{
		http.StatusTooManyRequests:     "rate limit exceeded, try again later or against a different server",
		http.StatusInternalServerError: "No cluster leader",
	} {
		d, w := tamper(t, testbed.SharedConsul(t).Addr())
		var asked atomic.Int64
		w.with(func(r *http.Request) (*http.Response, error) {
			if asked.Add(1) <= 4 {
				return reply(r, status, body)
			}
			return nil, nil
		})
		l := newLocker(t, d)
		begun := time.Now()
		release(t, acquire(t, l, t.Name()))
		if took := time.Since(begun); took < 300*time.Millisecond {
			t.Errorf("status %d: 4 refusals were over after %v", status, took)
		}
	}
}

// The leader is killed while a lock is held and others wait: the holder keeps
// the lock, the waiters keep their tickets, and tokens go on growing.
func TestLeaderKilled(t *testing.T) {
	testbed.Nightly(t, "run it after a change to how requests, renewals and blocking queries get over an election")
	t.Parallel()
	cluster := testbed.ConsulCluster(t)
	leader := cluster.Leader()
	var clients []*locker.Client
	for i := range 4 {
		followers := cluster.Followers()
		clients = append(clients, newLocker(t, first(counted(t, followers[i%len(followers)].Addr()))))
	}
	k := acquire(t, clients[0], t.Name())
	type grant struct {
		i int
		k *locker.Lock
	}
	granted := make(chan grant, 3)
	for i, l := range clients[1:] {
		go func() {
			k, err := l.Acquire(context.Background(), t.Name())
			if err != nil {
				t.Error(err)
				return
			}
			granted <- grant{i, k}
		}()
		awaitQueue(t, clients[0], t.Name(), i+2)
	}
	leader.Kill()
	begun := time.Now()
	awaitQueue(t, clients[0], t.Name(), 4)
	t.Logf("a new leader answers after %v", time.Since(begun))
	if err := k.Err(); err != nil {
		t.Fatalf("the holder: %v", err)
	}
	last := k.Token()
	for i := range 3 {
		select {
		case g := <-granted:
			t.Fatalf("waiter %d was granted while the lock is held", g.i)
		default:
		}
		release(t, k)
		select {
		case g := <-granted:
			if g.i != i || g.k.Token() <= last {
				t.Fatalf("waiter %d was granted with token %d, want waiter %d and more than %d", g.i, g.k.Token(), i, last)
			}
			k, last = g.k, g.k.Token()
		case <-time.After(10 * time.Second):
			t.Fatalf("waiter %d was not granted", i)
		}
	}
	release(t, k)
	k = acquire(t, clients[0], t.Name())
	if k.Token() <= last {
		t.Errorf("token %d after %d", k.Token(), last)
	}
	release(t, k)
}

// awaitQueue waits until the queue has n tickets, whatever the store says
// meanwhile.
func awaitQueue(t testing.TB, l *locker.Client, name string, n int) {
	t.Helper()
	var queue locker.Queue
	var err error
	for end := time.Now().Add(40 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if queue, err = l.Inspect(context.Background(), name); err == nil && len(queue.Tickets) == n {
			return
		}
	}
	t.Fatalf("the queue of %q has not come to have %d tickets: %+v, %v", name, n, queue, err)
}

// Leaders are killed one after the other under load. The fencing token of each
// grant is larger than any before, and no two hold at once.
func TestLeadersKilledUnderLoad(t *testing.T) {
	testbed.Nightly(t, "run it after a change to how requests, renewals and blocking queries get over an election")
	t.Parallel()
	cluster := testbed.ConsulCluster(t)
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	var holder *locker.Lock
	var tokens []uint64
	var group sync.WaitGroup
	for i := range 6 {
		l := newLocker(t, first(counted(t, cluster.Members[i%3].Addr())))
		group.Go(func() {
			for ctx.Err() == nil {
				k, err := l.Acquire(ctx, t.Name(), locker.WithTTL(10*time.Second))
				if err != nil {
					time.Sleep(50 * time.Millisecond) // the agent may be the killed one
					continue
				}
				mu.Lock()
				if holder != nil && holder.Err() == nil {
					t.Errorf("tokens %d and %d are held at once", holder.Token(), k.Token())
				}
				holder = k
				tokens = append(tokens, k.Token())
				mu.Unlock()
				time.Sleep(5 * time.Millisecond)
				mu.Lock()
				if holder == k {
					holder = nil
				}
				mu.Unlock()
				_ = k.Release(context.Background())
			}
		})
	}
	// A holder whose agent was killed blocks the queue until its session ends, so how
	// many grants there are after this says little.
	await(t, 10, "grants", func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(tokens)
	})
	for range 2 {
		time.Sleep(time.Second)
		leader := cluster.Leader()
		leader.Kill()
		time.Sleep(4 * time.Second)
		leader.Start()
	}
	time.Sleep(time.Second)
	cancel()
	group.Wait()
	t.Logf("%d grants", len(tokens))
	if !slices.IsSorted(tokens) || len(slices.Compact(tokens)) != len(tokens) {
		t.Errorf("tokens do not grow: %v", tokens)
	}
}

// An answer without some of the keys, as Consul gives it to a token that may not read them, says nothing about the tickets.
func TestMissingIsNotShown(t *testing.T) {
	t.Parallel()
	d, w := tamper(t, testbed.SharedConsul(t).Addr())
	h := get(t, d, request(t.Name()))
	w.with(func(r *http.Request) (*http.Response, error) {
		if strings.HasPrefix(body(r), `[{"KV":{"Verb":"get-or-empty"`) {
			return reply(r, http.StatusOK, `{"Results":[]}`)
		}
		return nil, nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if err := d.Renew(ctx, h, time.Minute); err == nil || errors.Is(err, driver.ErrLost) {
		t.Errorf("renewal: %v", err)
	}
	w.with(func(*http.Request) (*http.Response, error) { return nil, nil })
	if err := d.Renew(t.Context(), h, time.Minute); err != nil {
		t.Errorf("the next renewal: %v", err)
	}
	drop(t, d, h)
}

// The first request of a driver is lost. Another acquisition does not wait for its end.
func TestFirstRequestHangs(t *testing.T) {
	t.Parallel()
	d, w := tamper(t, testbed.SharedConsul(t).Addr())
	hangs := make(chan struct{})
	hang := once(func(string) { close(hangs) })
	w.with(func(r *http.Request) (*http.Response, error) {
		select {
		case <-hangs:
			return nil, nil
		default:
		}
		hang("")
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { _, _ = d.Acquire(ctx, request(t.Name()+"/lost")); close(ended) }()
	<-hangs
	drop(t, d, get(t, d, request(t.Name())))
	cancel()
	<-ended
}
