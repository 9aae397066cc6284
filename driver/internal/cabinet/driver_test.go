package cabinet_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/cabinet"
)

// TestRefusals proves what the suite cannot see (D14): whom an answer refuses.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		status      int
		unavailable bool
	}{
		{http.StatusUnauthorized, false},
		{http.StatusForbidden, false},
		{http.StatusTooManyRequests, true},
		{http.StatusBadGateway, true},
		{http.StatusServiceUnavailable, true},
	} {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.status) }))
		d, err := cabinet.New(srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		err = d.Ping(t.Context())
		if err == nil || driver.IsUnavailable(err) != c.unavailable {
			t.Errorf("status %d: %v, unavailable %v, want %v", c.status, err, driver.IsUnavailable(err), c.unavailable)
		}
		_ = d.Close()
		srv.Close()
	}
}

// TestDown proves that an error says what is wrong, and not which URL was asked for.
func TestDown(t *testing.T) {
	t.Parallel()
	srv := newCabinet(t)
	srv.Kill()
	d, err := cabinet.New(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if err := d.Ping(t.Context()); !driver.IsUnavailable(err) || strings.Contains(err.Error(), "documents?") {
		t.Errorf("a server that is down: %v", err)
	}
}

// TestTimeout proves that a request ends by itself: the engine's own have no other end.
func TestTimeout(t *testing.T) {
	t.Parallel()
	srv := newCabinet(t)
	srv.Pause()
	d, err := cabinet.New(srv.Addr(), cabinet.WithTimeout(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := d.Ping(ctx); !driver.IsUnavailable(err) || ctx.Err() != nil {
		t.Errorf("a server that does not answer: %v", err)
	}
}

// TestAnswerLost proves that no request is repeated silently (D13): a release that was done would be taken for a loss.
func TestAnswerLost(t *testing.T) {
	t.Parallel()
	srv := newCabinet(t)
	d, err := cabinet.New(srv.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r := driver.Request{Name: "order:42", ID: "t-1", TTL: time.Minute}
	g, err := d.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	lost := srv.LoseReply("PUT ")
	if err := d.Release(t.Context(), r.Hold(g.Token)); err != nil {
		t.Errorf("a release whose answer was lost: %v", err)
	}
	select {
	case <-lost: // which the proxy says when it has reset the connection
	case <-time.After(10 * time.Second):
		t.Error("no answer was lost")
	}
}

func TestURL(t *testing.T) {
	t.Parallel()
	srv := newCabinet(t)
	l, err := locker.Open(t.Context(), "cabinet://"+srv.Addr()+"?prefix=app&timeout=5s&ttl=10s")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	k, err := l.Acquire(t.Context(), "order:42")
	if err != nil {
		t.Fatal(err)
	}
	if srv.count("app:") == 0 {
		t.Error("the keys have another prefix")
	}
	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{"cabinet://", "cabinet://a,b", "cabinet://u:secret@a", "cabinet://a/path", "cabinet://a?timeout=0s", "cabinet://a?size=3"} {
		_, err := locker.Open(t.Context(), wrong)
		if !errors.Is(err, locker.ErrInvalidOption) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
}
