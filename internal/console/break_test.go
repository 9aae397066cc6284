package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/lockerproject/locker"
)

func breakBody(name string, token uint64) string {
	body, _ := json.Marshal(breakRequest{Name: name, Token: fmt.Sprint(token), Owner: "me"})
	return string(body)
}

func TestBreak(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{AllowBreak: true})
	lock := b.acquire("a", locker.WithOwner("me"))
	b.login()
	stream := b.stream()
	stream.hello()
	stream.queueIs("a", func(q *queueView) bool { return q.Holders == 1 })
	body := breakBody("a", lock.Token())
	own := b.srv.URL

	for what, headers := range map[string][]string{
		"another origin":          {"Origin", "https://evil.example"},
		"another site":            {"Sec-Fetch-Site", "cross-site"},
		"another port's page":     {"Origin", "http://127.0.0.1:1"},
		"a page of the same site": {"Sec-Fetch-Site", "same-site"},
		"an unknown origin":       {"Origin", "null"},
	} {
		if res, _ := b.request(http.MethodPost, "/api/break", body, headers...); res.StatusCode != http.StatusForbidden {
			t.Errorf("break with %s: %s, want 403", what, res.Status)
		}
	}
	if res, _ := b.request(http.MethodGet, "/api/break", body); res.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("break by GET: %s", res.Status)
	}
	if lock.Err() != nil {
		t.Fatal("a request that was refused has broken the lock")
	}
	if res, text := b.request(http.MethodPost, "/api/break", body, "Origin", own, "Sec-Fetch-Site", "same-origin"); res.StatusCode != http.StatusNoContent {
		t.Fatalf("break: %s %s", res.Status, text)
	}
	<-lock.Done()
	if !errors.Is(lock.Err(), locker.ErrLost) {
		t.Errorf("the broken lock's error is %v", lock.Err())
	}
	stream.queueIs("a", func(q *queueView) bool { return q.Holders == 0 })
	if es := b.con.stores[0].history("a").Events; len(es) == 0 || es[len(es)-1].Kind != broken {
		t.Errorf("events %+v, want broken last", es)
	}
	if res, text := b.request(http.MethodPost, "/api/break", body); res.StatusCode != http.StatusConflict || !strings.Contains(text, "no ticket") {
		t.Errorf("a second break: %s %s", res.Status, text)
	}
	if !strings.Contains(b.logged.String(), fmt.Sprintf("fencing_token=%d", lock.Token())) {
		t.Errorf("the log does not say what was broken:\n%s", b.logged)
	}
}

func TestReadOnly(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{})
	lock := b.acquire("a", locker.WithOwner("me"))
	b.login()
	h := b.stream().hello()
	if h.AllowBreak {
		t.Error("a console without the option lets the page break locks")
	}
	res, text := b.request(http.MethodPost, "/api/break", breakBody("a", lock.Token()))
	if res.StatusCode != http.StatusForbidden || !strings.Contains(text, "--allow-break") {
		t.Errorf("break: %s %s", res.Status, text)
	}
	if lock.Err() != nil {
		t.Error("the lock is broken")
	}
}

func TestBreakBadRequests(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{AllowBreak: true}, Store{"fake", &fake{}})
	b.login()
	for body, want := range map[string]int{
		`{`: http.StatusBadRequest,
		`{"store":0,"name":"a","token":"1","all":true}`:  http.StatusBadRequest,
		`{"store":9,"name":"a","token":"1"}`:             http.StatusBadRequest,
		`{"store":-1,"name":"a","token":"1"}`:            http.StatusBadRequest,
		`{"store":0,"name":"a","token":"x"}`:             http.StatusBadRequest,
		`{"store":0,"name":"","token":"1"}`:              http.StatusBadRequest,
		`{"store":1,"name":"a","token":"1"}`:             http.StatusNotImplemented,
		`{"name":"` + strings.Repeat("x", maxBody) + `"`: http.StatusBadRequest,
	} {
		if res, text := b.request(http.MethodPost, "/api/break", body); res.StatusCode != want {
			t.Errorf("%.60s: %s %s, want %d", body, res.Status, text, want)
		}
	}
	for query, want := range map[string]int{"store=0&name=none": http.StatusOK, "store=7": http.StatusNotFound, "": http.StatusNotFound} {
		if res, text := b.request(http.MethodGet, "/api/queue?"+query, ""); res.StatusCode != want {
			t.Errorf("/api/queue?%s: %s %s", query, res.Status, text)
		}
	}
}
