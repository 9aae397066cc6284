package console

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
	"github.com/lockerproject/locker/internal/testbed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const testToken = "correct horse battery staple"

// bed is a console over a store in memory, served over HTTP.
type bed struct {
	t      *testing.T
	con    *Console
	srv    *httptest.Server
	locks  *locker.Client
	client *http.Client
	logged *testbed.Buffer
}

func newBed(t *testing.T, o Options, more ...Store) *bed {
	t.Helper()
	b := &bed{t: t, locks: locker.New(memory.New()), logged: new(testbed.Buffer)}
	o.Token, o.Logger = testToken, slog.New(slog.NewTextHandler(b.logged, nil))
	if o.Every == 0 {
		o.Every = MinEvery
	}
	con, err := New(append([]Store{{"memory://", b.locks}}, more...), o)
	if err != nil {
		t.Fatal(err)
	}
	b.con, b.srv = con, httptest.NewServer(con)
	jar, _ := cookiejar.New(nil)
	b.client = b.srv.Client()
	b.client.Jar = jar
	b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.Cleanup(func() {
		b.con.Close()
		b.srv.Close()
		if err := b.locks.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// request sends a request and returns the answer, whose body has been read.
func (b *bed) request(method, path, body string, headers ...string) (*http.Response, string) {
	b.t.Helper()
	req, err := http.NewRequestWithContext(b.t.Context(), method, b.srv.URL+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		}
		req.Header.Set(headers[i], headers[i+1])
	}
	res, err := b.client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return res, string(text)
}

func (b *bed) login(headers ...string) *http.Response {
	b.t.Helper()
	headers = append(headers, "Content-Type", "application/x-www-form-urlencoded")
	res, _ := b.request(http.MethodPost, "/login", url.Values{"token": {testToken}}.Encode(), headers...)
	if res.StatusCode != http.StatusSeeOther || res.Header.Get("Location") != "/" {
		b.t.Fatalf("login: %s to %s", res.Status, res.Header.Get("Location"))
	}
	return res
}

func (b *bed) acquire(name string, opts ...locker.Option) *locker.Lock {
	b.t.Helper()
	l, err := b.locks.Acquire(b.t.Context(), name, opts...)
	if err != nil {
		b.t.Fatal(err)
	}
	return l
}

// events is an open stream.
type events struct {
	t      *testing.T
	lines  *bufio.Scanner
	cancel context.CancelFunc
	close  func()
}

func (b *bed) stream() *events {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), 30*time.Second)
	req, _ := http.NewRequestWithContext(ctx, http.MethodGet, b.srv.URL+"/api/events", nil)
	res, err := b.client.Do(req)
	if err != nil {
		cancel()
		b.t.Fatal(err)
	}
	e := &events{t: b.t, lines: bufio.NewScanner(res.Body), cancel: cancel}
	e.lines.Buffer(nil, 16<<20)
	e.close = func() {
		cancel()
		res.Body.Close()
	}
	b.t.Cleanup(e.close)
	if res.StatusCode != http.StatusOK {
		b.t.Fatalf("stream: %s", res.Status)
	}
	return e
}

// next returns the next message, and false at the stream's end.
func (e *events) next() (kind, data string, ok bool) {
	for e.lines.Scan() {
		line := e.lines.Text()
		switch {
		case strings.HasPrefix(line, "event: "):
			kind = line[len("event: "):]
		case strings.HasPrefix(line, "data: "):
			return kind, line[len("data: "):], true
		}
	}
	return "", "", false
}

func (e *events) hello() hello {
	e.t.Helper()
	kind, data, _ := e.next()
	var h hello
	if err := json.Unmarshal([]byte(data), &h); err != nil || kind != "hello" {
		e.t.Fatalf("first message %q: %v", kind, err)
	}
	return h
}

// change returns the next change for which f is true.
func (e *events) change(f func(change) bool) change {
	e.t.Helper()
	for {
		kind, data, ok := e.next()
		if !ok {
			e.t.Fatalf("the stream has ended: %v", e.lines.Err())
		}
		var c change
		if kind != "store" {
			continue
		}
		if err := json.Unmarshal([]byte(data), &c); err != nil {
			e.t.Fatal(err)
		}
		if f(c) {
			return c
		}
	}
}

// queueIs waits until the queue of name is as f wants it.
func (e *events) queueIs(name string, f func(*queueView) bool) {
	e.t.Helper()
	e.change(func(c change) bool {
		for _, q := range c.Set {
			if q.Name == name && f(q) {
				return true
			}
		}
		return false
	})
}
