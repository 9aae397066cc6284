package consul_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/consul"
	"github.com/lockerproject/locker/internal/testbed"
)

// A ticket with a minimum hold, whose lease is longer, is passed on after the hold, with
// the delay of a session of that length.
func TestShorten(t *testing.T) {
	t.Parallel()
	srv := testbed.Consul(t, testbed.Args("-hcl", `session_ttl_min="1s"`))
	d := driverOver(t, srv.Addr(), newTransport(t), consul.WithMinTTL(time.Second))
	r := waits(t.Name())
	r.TTL, r.MinHold = time.Minute, 2*time.Second
	h := get(t, d, r)
	granted := waiting(t, driverOver(t, srv.Addr(), newTransport(t)), t.Name())
	var took time.Duration
	all := testbed.Elapsed(func() {
		begun := time.Now()
		if err := d.Shorten(t.Context(), h, r.MinHold); err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Fatal(err)
		}
		if g := <-granted; g.Token <= h.Token {
			t.Errorf("token %d after %d", g.Token, h.Token)
		}
		took = time.Since(begun)
	})
	if took < r.MinHold || all > consulBounds(r.MinHold)+time.Second {
		t.Errorf("passed on after %v, want %v at least, and %v at most", took, r.MinHold, consulBounds(r.MinHold))
	}
}

// losing returns a driver that loses one move between sessions: the request, which
// late delivers later, or only its answer.
func losing(t *testing.T, addr string, arrives bool) (d *consul.Driver, late func()) {
	t.Helper()
	w := &tampered{RoundTripper: newTransport(t)}
	d = driverOver(t, addr, w)
	var kept *http.Request
	w.with(func(r *http.Request) (*http.Response, error) {
		if !strings.Contains(body(r), `"unlock"`) || kept != nil {
			return nil, nil
		}
		text := body(r)
		kept = r.Clone(context.Background())
		kept.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(text)), nil }
		if arrives {
			resp, err := w.RoundTripper.RoundTrip(r)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("the move: %v, %v", resp, err)
			}
			_ = resp.Body.Close()
		}
		return nil, io.ErrUnexpectedEOF
	})
	return d, func() {
		again := kept.Clone(context.Background())
		again.Body, _ = kept.GetBody()
		resp, err := w.RoundTripper.RoundTrip(again)
		if err != nil || resp.StatusCode != http.StatusConflict {
			t.Fatalf("the first request, late: %v, %v", resp, err)
		}
		_ = resp.Body.Close()
	}
}

// The request that shortens a lease is lost, or its answer is, and is repeated. When the first arrives
// late, the ticket is held all the same, on a short session.
func TestShortenUnanswered(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedConsul(t)
	admin := newClient(t, srv.Addr())
	for _, arrives := range []bool{true, false} {
		d, late := losing(t, srv.Addr(), arrives)
		r := request(t.Name())
		r.TTL, r.MinHold = time.Hour, 30*time.Second
		h := get(t, d, r)
		if err := d.Shorten(t.Context(), h, 13*time.Second); err == nil || errors.Is(err, driver.ErrLost) {
			t.Errorf("a request that was not answered: %v", err)
		}
		if err := d.Shorten(t.Context(), h, 12*time.Second); err != nil {
			t.Errorf("asked again: %v", err)
		}
		late()
		info, _, err := admin.Session().Info(sessionOf(t, admin, t.Name()), nil)
		if err != nil || info == nil || info.TTL != "12s" && info.TTL != "13s" {
			t.Errorf("the ticket is on %+v, %v, want a short session", info, err)
		}
		if q, err := d.Inspect(t.Context(), t.Name()); err != nil || len(q) != 1 || q[0].Token != h.Token || !q[0].Held {
			t.Errorf("the queue is %+v, %v: want token %d", q, err, h.Token)
		}
		drop(t, d, h)
		late()
		if kvs := keysOf(t, admin, t.Name()); len(kvs) > 0 {
			t.Errorf("a ticket is left after its release: %+v", kvs)
		}
	}
}
