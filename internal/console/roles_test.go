package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/lockerproject/locker"
)

const testReadToken = "only looking, thank you"

// loginAs logs in with a token and a name, and returns where that leads.
func (b *bed) loginAs(token, who string) string {
	b.t.Helper()
	form := url.Values{"token": {token}, "who": {who}}.Encode()
	res, _ := b.request(http.MethodPost, "/login", form, "Content-Type", "application/x-www-form-urlencoded")
	return res.Header.Get("Location")
}

func TestReadToken(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{AllowBreak: true, ReadToken: testReadToken})
	lock := b.acquire("a", locker.WithOwner("me"))
	if to := b.loginAs(testReadToken, ""); to != "/" {
		t.Fatalf("the login leads to %q", to)
	}
	if b.stream().hello().AllowBreak {
		t.Error("the page is told to offer breaks")
	}
	res, text := b.request(http.MethodPost, "/api/break", breakBody("a", lock.Token()))
	if res.StatusCode != http.StatusForbidden || !strings.Contains(text, "only look") {
		t.Errorf("break: %s %s", res.Status, text)
	}
	if res, text := b.request(http.MethodGet, "/api/queue?store=0&name=a", ""); res.StatusCode != http.StatusOK {
		t.Errorf("a look: %s %s", res.Status, text)
	}
	if lock.Err() != nil {
		t.Error("the lock is broken")
	}
	if to := b.loginAs(testToken, ""); to != "/" || !b.stream().hello().AllowBreak {
		t.Errorf("the other token leads to %q, and may not break", to)
	}
	if res, text := b.request(http.MethodPost, "/api/break", breakBody("a", lock.Token())); res.StatusCode != http.StatusNoContent {
		t.Errorf("break: %s %s", res.Status, text)
	}
	for _, token := range []string{testToken, testReadToken} {
		if res, _ := b.request(http.MethodGet, "/metrics", "", "Authorization", "Bearer "+token); res.StatusCode != http.StatusOK {
			t.Errorf("metrics: %s", res.Status)
		}
		if strings.Contains(b.logged.String(), token) {
			t.Errorf("a token is logged:\n%s", b.logged)
		}
	}
}

// Without a token of readers an empty one is none.
func TestNoReadToken(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{})
	if to := b.loginAs("", ""); to != "/login?refused" {
		t.Errorf("the login leads to %q", to)
	}
	for _, read := range []string{"short", testToken} {
		if con, err := New([]Store{{"memory://", b.locks}}, Options{Token: testToken, ReadToken: read}); err == nil {
			con.Close()
			t.Errorf("the token %q of readers is accepted", read)
		}
	}
}

// Who may only look cannot try the other token more often than others: a right token in between
// does not make the wrong ones forgotten.
func TestReadersCannotGuess(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{ReadToken: testReadToken})
	for i := range freeTries {
		b.loginAs(fmt.Sprint("wrong ", i), "")
		if i == freeTries/2 {
			b.loginAs(testReadToken, "")
			b.request(http.MethodGet, "/metrics", "", "Authorization", "Bearer "+testReadToken)
		}
	}
	if to := b.loginAs(testToken, ""); !strings.HasPrefix(to, "/login?wait=") {
		t.Errorf("the next try leads to %q", to)
	}
}

func TestBreaksAreLoggedWithAName(t *testing.T) {
	t.Parallel()
	b := newBed(t, Options{AllowBreak: true})
	lock := b.acquire("a", locker.WithOwner("me"))
	b.loginAs(testToken, " Ada\nlevel=ERROR "+strings.Repeat("é", 200))
	b.request(http.MethodPost, "/api/break", breakBody("a", lock.Token()))
	who := `who="Ada\nlevel=ERROR ` + strings.Repeat("é", 100-len("Ada level=ERROR ")) + `" `
	login, broken, _ := strings.Cut(b.logged.String(), "console: break")
	for _, want := range []string{who, "name=a", fmt.Sprintf("fencing_token=%d", lock.Token())} {
		if !strings.Contains(broken, want) {
			t.Errorf("want %s in the break's\n%s", want, broken)
		}
	}
	if !strings.Contains(login, who) {
		t.Errorf("want %s in the login's\n%s", who, login)
	}
}
