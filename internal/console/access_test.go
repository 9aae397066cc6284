package console

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestNothingWithoutLogin(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{AllowBreak: true})
	for _, path := range []string{"/api/events", "/api/queue?store=0&name=a"} {
		if res, _ := b.request(http.MethodGet, path, ""); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("GET %s without a session: %s", path, res.Status)
		}
		if res, _ := b.request(http.MethodGet, path, "", "Cookie", "locker_console="+testToken); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("GET %s with a cookie of one's own: %s", path, res.Status)
		}
		if res, _ := b.request(http.MethodGet, path+"&token="+url.QueryEscape(testToken), ""); res.StatusCode == http.StatusOK {
			t.Errorf("GET %s takes a token in the URL", path)
		}
	}
	for _, path := range []string{"/api/break", "/logout"} {
		if res, _ := b.request(http.MethodPost, path, "{}"); res.StatusCode != http.StatusUnauthorized {
			t.Errorf("POST %s without a session: %s", path, res.Status)
		}
	}
	if res, _ := b.request(http.MethodGet, "/", ""); res.Header.Get("Location") != "/login" {
		t.Errorf("the page without a session: %s to %q, want the login", res.Status, res.Header.Get("Location"))
	}
}

func TestLogin(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{})
	form := []string{"Content-Type", "application/x-www-form-urlencoded"}
	for what, body := range map[string]string{
		"wrong": "token=wrong", "empty": "", "prefix": "token=" + url.QueryEscape(testToken[:20]), "longer": "token=" + url.QueryEscape(testToken+"x"),
	} {
		res, _ := b.request(http.MethodPost, "/login", body, form...)
		if res.Header.Get("Location") != "/login?refused" || len(res.Cookies()) > 0 {
			t.Errorf("a token that is %s: %s to %q, cookies %v", what, res.Status, res.Header.Get("Location"), res.Cookies())
		}
	}
	if res, _ := b.request(http.MethodPost, "/login?token="+url.QueryEscape(testToken), "", form...); len(res.Cookies()) > 0 {
		t.Error("a token in the URL logs in")
	}
	c := b.login().Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != "/" || c.Secure || c.MaxAge <= 0 {
		t.Errorf("cookie %v", c)
	}
	if strings.Contains(c.Value, testToken) || len(c.Value) < 20 {
		t.Errorf("the cookie's value %q is no random one", c.Value)
	}
	if _, port, _ := strings.Cut(b.srv.Listener.Addr().String(), ":"); !strings.HasSuffix(c.Name, port) {
		t.Errorf("cookie %s does not name the port %s", c.Name, port)
	}
	for site, want := range map[string]int{"same-origin": 200, "none": 200, "": 200, "same-site": 403, "cross-site": 403} {
		if res, _ := b.request(http.MethodGet, "/api/queue?store=0&name=a", "", "Sec-Fetch-Site", site); res.StatusCode != want {
			t.Errorf("a request from a page that is %q: %s", site, res.Status)
		}
	}
	if res, text := b.request(http.MethodGet, "/", ""); res.StatusCode != http.StatusOK || !strings.Contains(text, "main.js") {
		t.Errorf("the page: %s", res.Status)
	}
	origin := "https://" + b.srv.Listener.Addr().String() // before a proxy with TLS
	if c := b.login("Origin", origin).Cookies()[0]; !c.Secure {
		t.Error("the cookie of a login by https is not Secure")
	}
}

func TestLogout(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{})
	b.login()
	stream := b.stream()
	stream.hello()
	if res, _ := b.request(http.MethodPost, "/logout", "", "Sec-Fetch-Site", "same-site"); res.StatusCode != http.StatusForbidden {
		t.Errorf("logout by another page: %s", res.Status)
	}
	cookie := b.client.Jar.Cookies(mustURL(t, b.srv.URL))[0]
	if res, _ := b.request(http.MethodPost, "/logout", ""); res.StatusCode != http.StatusNoContent {
		t.Fatalf("logout: %s", res.Status)
	}
	last := ""
	for kind, _, ok := stream.next(); ok; kind, _, ok = stream.next() {
		last = kind
	}
	if last != "bye" {
		t.Errorf("the session's stream ended with %q, want bye", last)
	}
	if res, _ := b.request(http.MethodGet, "/api/queue?store=0&name=a", "", "Cookie", cookie.String()); res.StatusCode != http.StatusUnauthorized {
		t.Errorf("the cookie of a session that has ended: %s", res.Status)
	}
}

func TestSessionsAreBounded(t *testing.T) {
	t.Parallel()
	s := newSessions(testToken, "")
	defer s.close()
	first := s.begin(operator, "")
	for range maxSessions + 10 {
		s.begin(operator, "")
	}
	if len(s.all) > maxSessions {
		t.Errorf("%d sessions, want at most %d", len(s.all), maxSessions)
	}
	r, _ := http.NewRequestWithContext(context.Background(), http.MethodGet, "/", nil)
	r.AddCookie(&http.Cookie{Name: "locker_console", Value: first})
	if s.of(r) != nil {
		t.Error("the oldest session was not removed")
	}
}

func TestHost(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{Hosts: []string{"Locks.Example.com"}})
	for host, ok := range map[string]bool{
		"127.0.0.1:7070": true, "localhost": true, "LOCALHOST:1": true, "[::1]:7070": true, "10.1.2.3": true,
		"locks.example.com": true, "locks.example.com:443": true, "locks.example.com.": true,
		"evil.example": false, "evil.example:7070": false, "localhost.evil.example": false, "127.0.0.1.evil.example": false,
	} {
		res, _ := b.request(http.MethodGet, "/login", "", "Host", host)
		if (res.StatusCode == http.StatusOK) != ok {
			t.Errorf("host %s: %s", host, res.Status)
		}
		if !ok && res.StatusCode != http.StatusMisdirectedRequest {
			t.Errorf("host %s: %s, want 421", host, res.Status)
		}
	}
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{})
	check := func(path string) {
		res, _ := b.request(http.MethodGet, path, "")
		for name, want := range map[string]string{
			"Content-Security-Policy": "default-src 'none'", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
			"Referrer-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
			"Cache-Control": "no-",
		} {
			if got := res.Header.Get(name); !strings.Contains(got, want) {
				t.Errorf("%s: %s: %q, want %q", path, name, got, want)
			}
		}
	}
	for _, path := range []string{"/", "/login", "/nothing", "/assets/main.js", "/api/events"} {
		check(path)
	}
	b.login()
	check("/")
	check("/api/queue?store=0&name=a")
	if strings.Contains(contentPolicy, "unsafe") || strings.Contains(contentPolicy, "http") {
		t.Errorf("policy %q", contentPolicy)
	}
}

// TestNothingFromOutside holds the page to its policy: nothing inline, and
// nothing that another server would have to give.
func TestNothingFromOutside(t *testing.T) {
	t.Parallel()
	files, err := web.ReadDir("web")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, _ := web.ReadFile("web/" + f.Name())
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "eval(", "https://", "style=\"", "onclick=\"", "javascript:", "@import", "<style"} {
			if strings.Contains(string(text), bad) {
				t.Errorf("%s has %s", f.Name(), bad)
			}
		}
		if i := strings.Index(string(text), "http://"); i >= 0 && !strings.HasPrefix(string(text[i:]), "http://www.w3.org/2000/svg") {
			t.Errorf("%s names another server: %.40s", f.Name(), text[i:])
		}
	}
}

func TestAssets(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{})
	res, _ := b.request(http.MethodGet, "/assets/main.js", "")
	if ct := res.Header.Get("Content-Type"); !strings.Contains(ct, "javascript") {
		t.Errorf("main.js is %q", ct)
	}
	for _, path := range []string{"/assets/..%2fconsole.go", "/assets/", "/assets/none.js", "/web/main.js"} {
		if res, _ := b.request(http.MethodGet, path, ""); res.StatusCode != http.StatusNotFound && res.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", path, res.Status)
		}
	}
}

// TestTokenIsNotTold looks for the token in everything that the console says.
func TestTokenIsNotTold(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{AllowBreak: true})
	var said strings.Builder
	keep := func(res *http.Response, body string) {
		said.WriteString(res.Status + body)
		_ = res.Header.Write(&said)
	}
	keep(b.request(http.MethodPost, "/login", "token=wrong"+url.QueryEscape(testToken), "Content-Type", "application/x-www-form-urlencoded"))
	keep(b.login(), "")
	keep(b.request(http.MethodGet, "/", ""))
	stream := b.stream()
	stream.hello()
	keep(b.request(http.MethodPost, "/api/break", `{"store":0,"name":"a","token":"1","owner":"x"}`))
	stream.close()
	if said := said.String() + b.logged.String(); strings.Contains(said, testToken) || strings.Contains(said, url.QueryEscape(testToken)) {
		t.Errorf("the token is shown:\n%s", said)
	}
	for _, want := range []string{"login refused", "console: login", "console: break"} {
		if !strings.Contains(b.logged.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, b.logged)
		}
	}
	for _, cookie := range b.client.Jar.Cookies(mustURL(t, b.srv.URL)) {
		if strings.Contains(b.logged.String(), cookie.Value) {
			t.Error("the log has the session's cookie")
		}
	}
}

func TestOptions(t *testing.T) {
	t.Parallel()
	one := []Store{{"x", &fake{}}}
	for want, f := range map[string]func() (*Console, error){
		"no store":        func() (*Console, error) { return New(nil, Options{Token: testToken}) },
		"at least 16":     func() (*Console, error) { return New(one, Options{Token: "short secret"}) },
		"too often":       func() (*Console, error) { return New(one, Options{Token: testToken, Every: time.Millisecond}) },
		`store "x" is ni`: func() (*Console, error) { return New([]Store{{"x", nil}}, Options{Token: testToken}) },
	} {
		c, err := f()
		if err == nil {
			c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "short secret") {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

func mustURL(t *testing.T, text string) *url.URL {
	t.Helper()
	u, err := url.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// An address that sends wrong tokens has to wait, longer after each. One that sends the right token has not.
func TestWrongTokensAreDelayed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var w wrongTokens
		try := func(from string, is role) time.Duration {
			_, wait := w.try(from, func() role { return is })
			return wait
		}
		for i := range freeTries {
			if d := try("10.0.0.1:1000", stranger); d > 0 {
				t.Fatalf("a wait of %v after %d wrong tokens", d, i)
			}
		}
		for range 3 {
			if d := try("10.0.0.1:3000", operator); d != delay {
				t.Errorf("a wait of %v, want %v", d, delay)
			}
			if d := try("10.0.0.2:1000", reader); d > 0 {
				t.Errorf("another address waits %v", d)
			}
			time.Sleep(delay - 1)
			if d := try("10.0.0.1:3000", operator); d != 1 {
				t.Errorf("a wait of %v, want 1ns", d)
			}
			time.Sleep(time.Nanosecond)
			if d := try("10.0.0.1:2000", stranger); d > 0 {
				t.Errorf("a wait of %v when it is over", d)
			}
		}
		time.Sleep(delay)
		for range 2 {
			if d := try("10.0.0.1:1000", operator); d > 0 {
				t.Errorf("a wait of %v after the token", d)
			}
		}
		for i := range 2 * maxWrong {
			w.add(fmt.Sprint("10.1.0.", i, ":1"))
		}
		if len(w.from) > maxWrong {
			t.Errorf("%d addresses are remembered", len(w.from))
		}
		time.Sleep(forgetTry + time.Second)
		w.add("10.0.0.1:1000")
		if len(w.from) != 1 {
			t.Errorf("%d addresses are remembered for long", len(w.from))
		}
	})
}

func TestLoginAfterWrongTokens(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{})
	form := []string{"Content-Type", "application/x-www-form-urlencoded"}
	for range freeTries + 2 {
		if res, _ := b.request(http.MethodPost, "/login", "token=wrong", form...); len(res.Cookies()) > 0 {
			t.Fatal("a wrong token logs in")
		}
	}
	res, _ := b.request(http.MethodPost, "/login", "token="+url.QueryEscape(testToken), form...)
	if to := res.Header.Get("Location"); !strings.HasPrefix(to, "/login?wait=") || len(res.Cookies()) > 0 {
		t.Errorf("after many wrong tokens: %s to %q", res.Status, to)
	}
}

// A probe asks whether the console serves, without a login.
func TestHealth(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{})
	if res, text := b.request(http.MethodGet, "/healthz", ""); res.StatusCode != http.StatusOK || text != "ok\n" {
		t.Errorf("%s, %q", res.Status, text)
	}
}
