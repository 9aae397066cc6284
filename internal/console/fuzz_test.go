package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/lockerproject/locker"
)

// counted is a Source that counts what is broken.
type counted struct {
	fake
	broken atomic.Int64
}

func (*counted) List(context.Context) ([]string, error) { return []string{"a"}, nil }

func (*counted) Inspect(context.Context, string) (locker.Queue, error) {
	return locker.Queue{Name: "a", Tickets: []locker.Ticket{{Token: 7, Owner: "me", Held: true}}}, nil
}

func (c *counted) Break(context.Context, string, uint64) error {
	c.broken.Add(1)
	return nil
}

// FuzzRequest sends any request: without a session, with one from another page, and with one. It is answered; only the last
// breaks a lock, if it asks for that; and no answer has the token.
func FuzzRequest(f *testing.F) {
	src := new(counted)
	con, err := New([]Store{{"counted://", src}}, Options{Token: testToken, AllowBreak: true})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(con.Close)
	id := con.sessions.begin(operator, "")
	f.Fuzz(func(t *testing.T, method, target, host, body, header, value string) {
		if host == "" || strings.Contains(body, testToken) {
			return
		}
		for _, who := range []string{"nobody", "another page", "page"} {
			r, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1/"+target, strings.NewReader(body))
			if err != nil {
				return // net/http refuses it
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel() // a stream ends after its first messages
			r = r.WithContext(ctx)
			r.Host, r.RemoteAddr = host, "192.0.2.1:1"
			if header != "" {
				r.Header.Set(header, value)
			}
			if who != "nobody" {
				r.AddCookie(&http.Cookie{Name: cookieName(r), Value: id})
			}
			if who == "another page" {
				r.Header.Set("Sec-Fetch-Site", "same-site")
			}
			before := src.broken.Load()
			w := httptest.NewRecorder()
			con.ServeHTTP(w, r)
			switch {
			case w.Code >= http.StatusInternalServerError && w.Code != http.StatusNotImplemented:
				t.Errorf("%s %q: %d: %s", method, target, w.Code, w.Body)
			case who != "page" && src.broken.Load() > before:
				t.Errorf("%s broke a lock with %s %q", who, method, target)
			case strings.Contains(w.Body.String(), testToken):
				t.Errorf("%s %q is answered with the token", method, target)
			}
			if con.sessions.of(r) == nil { // it has logged out
				id = con.sessions.begin(operator, "")
			}
		}
	})
}
