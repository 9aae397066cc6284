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

// losing returns a driver that loses one move between sessions: the request, which
// late delivers later, or only its answer.
func losing(t *testing.T, addr string, arrives bool) (d *consul.Driver, late func() int) {
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
		kept.Body = io.NopCloser(strings.NewReader(text))
		if arrives {
			resp, err := w.RoundTripper.RoundTrip(r)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("the move: %v, %v", resp, err)
			}
			_ = resp.Body.Close()
		}
		return nil, io.ErrUnexpectedEOF
	})
	return d, func() int {
		resp, err := w.RoundTripper.RoundTrip(kept)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
}

// lostMove acquires name for 15 s and loses an extension to a minute.
func lostMove(t *testing.T, d driver.Driver, name string) driver.Hold {
	t.Helper()
	h := get(t, d, request(name))
	if err := d.Renew(t.Context(), h, time.Minute); err == nil || errors.Is(err, driver.ErrLost) {
		t.Fatalf("an extension that was not answered: %v", err)
	}
	return h
}

// An extension that moves the ticket to a longer session is lost, or its answer is.
// The ticket stays held, whatever the next request is.
func TestMoveUnanswered(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedConsul(t)
	admin := newClient(t, srv.Addr())
	for _, arrives := range []bool{true, false} {
		what := map[bool]string{true: "answer lost", false: "request lost"}[arrives]
		for next, ttl := range map[string]time.Duration{
			"renewed": 15 * time.Second, "extended again": time.Minute, "extended more": time.Hour,
		} {
			t.Run(what+", "+next, func(t *testing.T) {
				d, late := losing(t, srv.Addr(), arrives)
				h := lostMove(t, d, t.Name())
				if err := d.Renew(t.Context(), h, ttl); err != nil {
					t.Fatalf("renew: %v", err)
				}
				session := sessionOf(t, admin, strings.ReplaceAll(strings.ReplaceAll(t.Name(), ",", "=2C"), " ", "=20"))
				info, _, err := admin.Session().Info(session, nil)
				if err != nil || info == nil || info.TTL == "15s" {
					t.Errorf("the ticket is in session %+v, %v: want a longer one", info, err)
				}
				if status := late(); status != http.StatusConflict {
					t.Errorf("the first request, late: %d, want 409", status)
				}
				if again := sessionOf(t, admin, strings.ReplaceAll(strings.ReplaceAll(t.Name(), ",", "=2C"), " ", "=20")); again != session {
					t.Errorf("the late request has moved the ticket from %s to %s", session, again)
				}
				if q, err := d.Inspect(t.Context(), t.Name()); err != nil || len(q) != 1 || q[0].Token != h.Token || !q[0].Held {
					t.Errorf("the queue is %+v, %v: want token %d", q, err, h.Token)
				}
				drop(t, d, h)
				if err := d.Renew(t.Context(), h, 15*time.Second); !errors.Is(err, driver.ErrLost) {
					t.Errorf("renew after the release: %v, want ErrLost", err)
				}
			})
		}
	}
}

// The ticket may be in either session: a release removes it, and the end of the old
// session is a loss only if the ticket was still in that session.
func TestMoveUnansweredEnds(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedConsul(t)
	admin := newClient(t, srv.Addr())
	for _, arrives := range []bool{true, false} {
		d, late := losing(t, srv.Addr(), arrives)
		h := lostMove(t, d, t.Name())
		drop(t, d, h)
		if status := late(); status != http.StatusConflict {
			t.Errorf("the move, late after the release: %d, want 409", status)
		}
		if kvs := keysOf(t, admin, t.Name()); len(kvs) > 0 {
			t.Errorf("a ticket is left after its release: %+v", kvs)
		}

		d, _ = losing(t, srv.Addr(), arrives)
		notified := make(chan error, 1)
		d.NotifyLoss(func(_ driver.Hold, cause error) { notified <- cause })
		h = get(t, d, request(t.Name()))
		old := sessionOf(t, admin, t.Name())
		awaitLossWatch(t, admin, old)
		if err := d.Renew(t.Context(), h, time.Minute); err == nil {
			t.Fatal("the move was answered")
		}
		destroy(t, admin, old)
		held := len(keysOf(t, admin, t.Name())) > 0
		if held != arrives {
			t.Fatalf("after the end of the old session the ticket is there: %v", held)
		}
		select {
		case cause := <-notified:
			if held || !errors.Is(cause, driver.ErrLost) {
				t.Errorf("lost: %v; the ticket is there: %v", cause, held)
			}
		case <-time.After(400 * time.Millisecond):
		}
		err := d.Renew(t.Context(), h, 15*time.Second)
		if held != (err == nil) || !held && !errors.Is(err, driver.ErrLost) {
			t.Errorf("renew when the ticket is there (%v): %v", held, err)
		}
		if held {
			drop(t, d, h)
		} else if err := d.Release(t.Context(), h); !errors.Is(err, driver.ErrLost) {
			t.Errorf("release of what is lost: %v", err)
		}
	}
}

// A session to which a ticket may have been moved is not destroyed as an idle one, and
// carries the ticket later.
func TestMoveUnansweredLives(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes 12 seconds")
	}
	srv := testbed.SharedConsul(t)
	d, _ := losing(t, srv.Addr(), true)
	notified := make(chan error, 1)
	d.NotifyLoss(func(_ driver.Hold, cause error) { notified <- cause })
	h := lostMove(t, d, t.Name())
	select {
	case cause := <-notified:
		t.Fatalf("lost: %v", cause)
	case <-time.After(12 * time.Second):
	}
	if err := d.Renew(t.Context(), h, 15*time.Second); err != nil {
		t.Fatal(err)
	}
	drop(t, d, h)
}
