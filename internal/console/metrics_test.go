package console

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/lockerproject/locker"
)

// downSource is a store that does not answer.
type downSource struct{ Source }

func (downSource) List(context.Context) ([]string, error) { return nil, errors.New("no answer") }

func TestMetrics(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{}, Store{Name: `a "b"`, Source: downSource{}})
	b.acquire("one")
	b.acquire("two", locker.Shared())
	b.acquire("two", locker.Shared())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = b.locks.Acquire(ctx, "one")
	}()
	defer func() { cancel(); <-done }()
	for {
		if q, err := b.locks.Inspect(t.Context(), "one"); err != nil || len(q.Tickets) == 2 {
			break
		}
	}
	res, text := b.request(http.MethodGet, "/metrics", "", "Authorization", "Bearer "+testToken)
	if res.StatusCode != http.StatusOK || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain; version=0.0.4") {
		t.Fatalf("%s, %s: %s", res.Status, res.Header.Get("Content-Type"), text)
	}
	for _, want := range []string{
		`locker_store_up{store="memory://"} 1`, `locker_store_up{store="a \"b\""} 0`, `locker_store_locks_held{store="memory://"} 2`,
		`locker_store_holders{store="memory://"} 3`, `locker_store_waiters{store="memory://"} 1`, "# TYPE locker_store_longest_wait_seconds gauge",
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("want %s in\n%s", want, text)
		}
	}
}

// Prometheus drops all but one of the series that have the same labels.
func TestMetricsOfStoresOfOneName(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{}, Store{Name: "memory:// (2)", Source: downSource{}}, Store{Name: "memory://", Source: downSource{}},
		Store{Name: "memory://", Source: downSource{}})
	_, text := b.request(http.MethodGet, "/metrics", "", "Authorization", "Bearer "+testToken)
	for _, want := range []string{
		`locker_store_up{store="memory://"} 1`, `locker_store_up{store="memory:// (2)"} 0`, `locker_store_up{store="memory:// (3)"} 0`,
		`locker_store_up{store="memory:// (4)"} 0`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("want %s in\n%s", want, text)
		}
	}
}

// namelessSource is a store that cannot list names, and answers unless it is down.
type namelessSource struct {
	Source
	down error
}

func (namelessSource) List(context.Context) ([]string, error) { return nil, locker.ErrUnsupported }
func (s namelessSource) Ping(context.Context) error           { return s.down }

// A store that cannot list names is up if it answers; and what is not known of a store is no zero.
func TestMetricsOfTheUnknown(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{}, Store{Name: "nameless", Source: namelessSource{}},
		Store{Name: "away", Source: namelessSource{down: locker.ErrUnavailable}}, Store{Name: "down", Source: downSource{}})
	_, text := b.request(http.MethodGet, "/metrics", "", "Authorization", "Bearer "+testToken)
	for store, up := range map[string]string{"nameless": "1", "away": "0", "down": "0"} {
		if !strings.Contains(text, `locker_store_up{store="`+store+`"} `+up+"\n") || strings.Count(text, `{store="`+store+`"}`) != 1 {
			t.Errorf("want that %s is up: %s, and no more of it, in\n%s", store, up, text)
		}
	}
}

// The name of the scheme may be written in any case (RFC 9110, section 11.1).
func TestMetricsScheme(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{})
	for _, scheme := range []string{"Bearer ", "bearer ", "BEARER  "} {
		if res, text := b.request(http.MethodGet, "/metrics", "", "Authorization", scheme+testToken); res.StatusCode != http.StatusOK {
			t.Errorf("%q: %s %s", scheme, res.Status, text)
		}
	}
}

func TestMetricsWantTheToken(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{})
	b.login() // a session is no token: a page could be made to read it
	for _, header := range []string{"", "Bearer", "Bearer wrong", "Basic " + testToken, "Bearer " + testToken[:20]} {
		res, text := b.request(http.MethodGet, "/metrics", "", "Authorization", header)
		if res.StatusCode != http.StatusUnauthorized || strings.Contains(text, "locker_store") {
			t.Errorf("Authorization %q: %s %s", header, res.Status, text)
		}
	}
	for range freeTries {
		b.request(http.MethodGet, "/metrics", "", "Authorization", "Bearer wrong")
	}
	if res, _ := b.request(http.MethodGet, "/metrics", "", "Authorization", "Bearer "+testToken); res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") == "" {
		t.Errorf("after many wrong tokens: %s", res.Status)
	}
	if strings.Contains(b.logged.String(), "wrong\n") || strings.Contains(b.logged.String(), testToken) {
		t.Errorf("a token is logged:\n%s", b.logged)
	}
}
