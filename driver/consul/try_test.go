package consul_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/consul"
	"github.com/lockerproject/locker/internal/testbed"
)

var ids atomic.Int64

// request returns a request for a new ticket.
func request(name string) driver.Request {
	return driver.Request{
		Name: name, ID: fmt.Sprintf("t%d-%d", time.Now().UnixNano(), ids.Add(1)),
		TTL: 15 * time.Second, Renewed: true,
	}
}

func sharedRequest(name string, limit int) driver.Request {
	r := request(name)
	r.Shared, r.Limit = true, limit
	return r
}

// get acquires what must be granted, and returns the hold.
func get(t testing.TB, d driver.Driver, r driver.Request) driver.Hold {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	g, err := d.Acquire(ctx, r)
	if err != nil {
		t.Fatalf("acquire %q: %v", r.Name, err)
	}
	return r.Hold(g.Token)
}

func drop(t testing.TB, d driver.Driver, h driver.Hold) {
	t.Helper()
	if err := d.Release(context.Background(), h); err != nil {
		t.Fatalf("release %q: %v", h.Name, err)
	}
}

// body reads what a request sends, and leaves it as it was.
func body(r *http.Request) string {
	if r.Body == nil {
		return ""
	}
	b, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(b))
	return string(b)
}

// creates reports whether a request creates a ticket.
func creates(text string) bool {
	return strings.Contains(text, base64.StdEncoding.EncodeToString([]byte(`{"id":`)))
}

// tried returns a driver that calls before ahead of each request that creates a ticket,
// and after with its answer.
func tried(t testing.TB, addr string, before, after func(answer string)) *consul.Driver {
	t.Helper()
	d, w := tamper(t, addr)
	w.with(func(r *http.Request) (*http.Response, error) {
		if !creates(body(r)) {
			return nil, nil
		}
		if before != nil {
			before("")
		}
		resp, err := w.RoundTripper.RoundTrip(r)
		if err == nil && after != nil {
			after(resp.Status)
		}
		return resp, err
	})
	return d
}

// once returns a function that calls f the first time, and then does nothing.
func once(f func(string)) func(string) {
	var called atomic.Bool
	return func(s string) {
		if !called.Swap(true) {
			f(s)
		}
	}
}

// A try for a held lock costs one request, which writes nothing.
func TestTryRefusedWritesNothing(t *testing.T) {
	t.Parallel()
	addr := testbed.SharedConsul(t).Addr()
	holder := first(counted(t, addr))
	h := get(t, holder, request(t.Name()))
	d, w := tamper(t, addr)
	if err := d.Ping(t.Context()); err != nil { // after this the driver knows the protocol version
		t.Fatal(err)
	}
	var sent []string
	w.with(func(r *http.Request) (*http.Response, error) {
		sent = append(sent, r.URL.Path+" "+body(r))
		return nil, nil
	})
	for _, r := range []driver.Request{request(t.Name()), sharedRequest(t.Name(), 0), sharedRequest(t.Name(), 3)} {
		sent = nil
		if _, err := d.Acquire(t.Context(), r); !errors.Is(err, driver.ErrNotAcquired) {
			t.Fatalf("a try: %v, want ErrNotAcquired", err)
		}
		if len(sent) != 1 || strings.Count(sent[0], `"Verb":"get-tree"`) != strings.Count(sent[0], `"Verb"`) {
			t.Errorf("it sent %q, want one read", sent)
		}
	}
	drop(t, holder, h)
}

// While readers hold, a writer's try is refused. During it no reader's try is refused,
// and the queue shows nobody but readers.
func TestTryRefusedIsNeverQueued(t *testing.T) {
	t.Parallel()
	addr := testbed.SharedConsul(t).Addr()
	holder, reader := first(counted(t, addr)), first(counted(t, addr))
	h := get(t, holder, sharedRequest(t.Name(), 0))
	d, w := tamper(t, addr)
	look := func() {
		drop(t, reader, get(t, reader, sharedRequest(t.Name(), 0)))
		drop(t, reader, get(t, reader, sharedRequest(t.Name(), 2)))
		if q, err := holder.Inspect(t.Context(), t.Name()); err != nil || len(q) != 1 {
			t.Errorf("the queue is %+v, %v: want the reader alone", q, err)
		}
	}
	w.with(func(r *http.Request) (*http.Response, error) {
		look()
		resp, err := w.RoundTripper.RoundTrip(r)
		look()
		return resp, err
	})
	if _, err := d.Acquire(t.Context(), request(t.Name())); !errors.Is(err, driver.ErrNotAcquired) {
		t.Errorf("a try: %v, want ErrNotAcquired", err)
	}
	drop(t, holder, h)
}

// If a waiter is queued after a try has read the queue, and before the try's ticket is
// created, the try is refused, and is never queued.
func TestTryMeetsWaiter(t *testing.T) {
	t.Parallel()
	addr := testbed.SharedConsul(t).Addr()
	for what, blocks := range map[string]struct{ try, waiter driver.Request }{
		"exclusive by exclusive": {request(t.Name() + "/1"), request(t.Name() + "/1")},
		"exclusive by shared":    {request(t.Name() + "/2"), sharedRequest(t.Name()+"/2", 0)},
		"shared by exclusive":    {sharedRequest(t.Name()+"/3", 0), request(t.Name() + "/3")},
		"limited by shared":      {sharedRequest(t.Name()+"/4", 1), sharedRequest(t.Name()+"/4", 0)},
	} {
		t.Run(what, func(t *testing.T) {
			other := first(counted(t, addr))
			blocks.waiter.Wait = true
			var h driver.Hold
			var answers []string
			d := tried(t, addr,
				once(func(string) { h = get(t, other, blocks.waiter) }),
				func(answer string) {
					answers = append(answers, answer)
					if q, err := other.Inspect(t.Context(), h.Name); err != nil || len(q) != 1 || q[0].Token != h.Token {
						t.Errorf("the queue is %+v, %v: want only ticket %d", q, err, h.Token)
					}
				})
			if _, err := d.Acquire(t.Context(), blocks.try); !errors.Is(err, driver.ErrNotAcquired) {
				t.Errorf("a try: %v, want ErrNotAcquired", err)
			}
			if len(answers) != 1 || !strings.HasPrefix(answers[0], "409") {
				t.Errorf("its transactions were answered with %q, want one refusal", answers)
			}
			drop(t, other, h)
		})
	}
}

// Two tries meet: the second one reads again.
func TestTryMeetsTry(t *testing.T) {
	t.Parallel()
	addr := testbed.SharedConsul(t).Addr()
	other := first(counted(t, addr))
	var h driver.Hold
	for range 3 { // each use of a guard changes it
		d := tried(t, addr, once(func(string) { h = get(t, other, request(t.Name())) }), nil)
		if _, err := d.Acquire(t.Context(), request(t.Name())); !errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("a try beside one that was granted: %v, want ErrNotAcquired", err)
		}
		drop(t, other, h)
	}

	d := tried(t, addr, once(func(string) { drop(t, other, get(t, other, request(t.Name()))) }), nil)
	drop(t, d, get(t, d, request(t.Name())))

	var transactions int
	d = tried(t, addr, once(func(string) { h = get(t, other, sharedRequest(t.Name(), 0)) }),
		func(string) { transactions++ })
	drop(t, d, get(t, d, sharedRequest(t.Name(), 0)))
	if transactions != 1 {
		t.Errorf("a reader's try beside another's took %d transactions, want 1", transactions)
	}
	drop(t, other, h)
}

// The answer to a try is lost. Asked again, it is granted, by one ticket.
func TestTryAnswerLost(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedConsul(t)
	p := srv.Proxy(t)
	d := driverOver(t, p.Addr(), newTransport(t))
	drop(t, d, get(t, d, request(t.Name()))) // makes session and guards
	r := request(t.Name())
	lost := p.LoseReply(`"lock"`)
	_, err := d.Acquire(t.Context(), r)
	if err == nil || errors.Is(err, driver.ErrNoTicket) || errors.Is(err, driver.ErrNotAcquired) {
		t.Fatalf("a try whose answer was lost: %v", err)
	}
	<-lost
	q, err := d.Inspect(t.Context(), t.Name())
	if err != nil || len(q) != 1 {
		t.Fatalf("the queue is %+v, %v: want the ticket", q, err)
	}
	h := get(t, d, r)
	if q, err = d.Inspect(t.Context(), t.Name()); err != nil || len(q) != 1 || q[0].Token != h.Token {
		t.Errorf("the queue is %+v, %v: want token %d alone", q, err, h.Token)
	}
	drop(t, d, h)
}

// The guards of tries are gone with the sessions that made them.
func TestTryLeavesNothing(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedConsul(t)
	d := driverOver(t, srv.Addr(), newTransport(t), consul.WithPrefix("guards"))
	for i := range 20 {
		name := fmt.Sprintf("%s/%d", t.Name(), i)
		drop(t, d, get(t, d, request(name)))
		drop(t, d, get(t, d, sharedRequest(name, 2)))
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	keys, _, err := newClient(t, srv.Addr()).KV().Keys("guards/", "", nil)
	if err != nil || len(keys) > 1 { // the protocol version stays
		t.Errorf("keys left: %q, %v", keys, err)
	}
}

// After a try has read the queue, a ticket is queued without a change of the guards, as
// another version may do it. Grants do not depend on the guards.
func TestTryMeetsUnguarded(t *testing.T) {
	t.Parallel()
	addr := testbed.SharedConsul(t).Addr()
	other, w := tamper(t, addr)
	guard := regexp.MustCompile(`,\{"KV":\{"Verb":"delete","Key":"` + prefixOf(t) + `/~/guard/[^}]*\}\}`)
	var unguarded int
	w.with(func(r *http.Request) (*http.Response, error) {
		text := body(r)
		if !creates(text) || !guard.MatchString(text) {
			return nil, nil
		}
		unguarded++
		text = guard.ReplaceAllString(text, "")
		r = r.Clone(r.Context())
		r.Body, r.ContentLength = newBody(text), int64(len(text))
		return w.RoundTripper.RoundTrip(r)
	})
	waiter := request(t.Name())
	waiter.Wait = true
	var h driver.Hold
	d := tried(t, addr, once(func(string) { h = get(t, other, waiter) }), nil)
	if _, err := d.Acquire(t.Context(), request(t.Name())); !errors.Is(err, driver.ErrNotAcquired) {
		t.Errorf("a try: %v, want ErrNotAcquired", err)
	}
	if q, err := d.Inspect(t.Context(), t.Name()); err != nil || len(q) != 1 || q[0].Token != h.Token || unguarded != 1 {
		t.Errorf("the queue is %+v, %v: want ticket %d alone, queued without guards (%d)", q, err, h.Token, unguarded)
	}
	drop(t, other, h)
}

// Another name, which has the same guards, is busy: a try takes a few requests more, and is
// granted.
func TestTryBesideBusyName(t *testing.T) {
	addr := testbed.SharedConsul(t).Addr()
	bucket := func(name string) uint32 {
		h := fnv.New32a()
		_, _ = h.Write([]byte(name))
		return h.Sum32() % 256
	}
	busy := t.Name() + "/busy"
	for i := 0; bucket(busy) != bucket(t.Name()); i++ {
		busy = fmt.Sprint(t.Name(), "/busy-", i)
	}
	stop := make(chan struct{})
	var group sync.WaitGroup
	for range 4 {
		d := first(counted(t, addr))
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					drop(t, d, get(t, d, waits(busy)))
				}
			}
		})
	}
	d, c := counted(t, addr)
	drop(t, d, get(t, d, request(t.Name()))) // makes the session
	const tries = 100
	before := c.n.Load()
	for range tries {
		drop(t, d, get(t, d, request(t.Name())))
	}
	if per := float64(c.n.Load()-before) / tries; per > 8 {
		t.Errorf("%.1f requests a try and its release, want about 5", per)
	}
	close(stop)
	group.Wait()
}

// A guard whose session ends just before another try's ticket is created is not made again:
// without a session it would stay for ever.
func TestGuardOfAnEndedSession(t *testing.T) {
	t.Parallel()
	srv := testbed.Consul(t)
	a, b := first(counted(t, srv.Addr())), first(counted(t, srv.Addr()))
	name := t.Name()
	drop(t, a, get(t, a, request(name)))          // makes both guards
	drop(t, b, get(t, b, waits(name)))            // deletes the one against exclusive tickets
	drop(t, b, get(t, b, sharedRequest(name, 0))) // makes that again
	c := tried(t, srv.Addr(), once(func(string) {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}), nil)
	drop(t, c, get(t, c, sharedRequest(name, 0)))
	for _, d := range []*consul.Driver{b, c} {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
	client := clientOver(t, srv.Addr(), newTransport(t))
	keys, _, err := client.KV().Keys("", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if strings.Contains(key, "/guard/") {
			t.Errorf("%s is left", key)
		}
	}
}
