package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	sessionFor  = 12 * time.Hour
	maxSessions = 256
)

// sessions are the browsers that are logged in. They live in this process: a
// restart logs everybody out.
type sessions struct {
	token [sha256.Size]byte

	mu  sync.Mutex
	all map[[sha256.Size]byte]*session // by the digest of the cookie's value
}

// session is one login.
type session struct {
	ctx context.Context // ends with the session, and its streams with it
	end context.CancelFunc
	at  time.Time
}

func newSessions(token string) *sessions {
	return &sessions{token: sha256.Sum256([]byte(token)), all: make(map[[sha256.Size]byte]*session)}
}

// right tells whether that is the token. Digests have one length, so the time that
// the comparison takes tells nothing, not even the token's length.
func (s *sessions) right(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return subtle.ConstantTimeCompare(sum[:], s.token[:]) == 1
}

// begin makes a session and returns the value of its cookie.
func (s *sessions) begin() string {
	id := rand.Text()
	n := &session{at: time.Now()}
	n.ctx, n.end = context.WithTimeout(context.Background(), sessionFor)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prune()
	s.all[sha256.Sum256([]byte(id))] = n
	return id
}

// prune removes the sessions that have ended and, if there are too many, the oldest.
func (s *sessions) prune() {
	for len(s.all) > 0 {
		var oldest [sha256.Size]byte
		var at time.Time
		for k, n := range s.all {
			if n.ctx.Err() != nil {
				delete(s.all, k)
			} else if at.IsZero() || n.at.Before(at) {
				oldest, at = k, n.at
			}
		}
		if len(s.all) < maxSessions {
			return
		}
		s.all[oldest].end()
	}
}

// of returns the session of a request, or nil.
func (s *sessions) of(r *http.Request) *session {
	cookie, err := r.Cookie(cookieName(r))
	if err != nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.all[sha256.Sum256([]byte(cookie.Value))]
	if n == nil || n.ctx.Err() != nil {
		return nil
	}
	return n
}

func (s *sessions) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.all {
		n.end()
	}
	clear(s.all)
}

// cookieName has the port in it: cookies do not know of ports, so that two
// consoles on one host would log each other out.
func cookieName(r *http.Request) string {
	if _, port, err := net.SplitHostPort(r.Host); err == nil && port != "" {
		return "locker_console_" + port
	}
	return "locker_console"
}

func cookie(r *http.Request, value string, age time.Duration) *http.Cookie {
	return &http.Cookie{
		Name: cookieName(r), Value: value, Path: "/", MaxAge: int(age.Seconds()),
		HttpOnly: true, SameSite: http.SameSiteStrictMode, Secure: secure(r),
	}
}

// secure tells whether the browser came by TLS, to us or to a proxy before us.
func secure(r *http.Request) bool {
	return r.TLS != nil || strings.HasPrefix(r.Header.Get("Origin"), "https://")
}

func (c *Console) page(w http.ResponseWriter, r *http.Request) {
	if c.sessions.of(r) == nil {
		http.Redirect(w, r, "/login", http.StatusSeeOther)
		return
	}
	serveFile(w, r, "console.html")
}

func (c *Console) loginPage(w http.ResponseWriter, r *http.Request) {
	if c.sessions.of(r) != nil {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	serveFile(w, r, "login.html")
}

func (c *Console) login(w http.ResponseWriter, r *http.Request) {
	if wait := c.wrongTokens.wait(r.RemoteAddr); wait > 0 {
		c.log.Warn("console: login refused: too many wrong tokens", "from", r.RemoteAddr, "wait", wait)
		http.Redirect(w, r, "/login?wait="+strconv.Itoa(int(wait/time.Second)+1), http.StatusSeeOther)
		return
	}
	// PostFormValue does not look into the URL, where a token would be logged.
	if !c.sessions.right(strings.TrimSpace(r.PostFormValue("token"))) {
		c.wrongTokens.add(r.RemoteAddr)
		c.log.Warn("console: login refused", "from", r.RemoteAddr)
		http.Redirect(w, r, "/login?refused", http.StatusSeeOther)
		return
	}
	c.wrongTokens.forget(r.RemoteAddr)
	c.log.Info("console: login", "from", r.RemoteAddr)
	http.SetCookie(w, cookie(r, c.sessions.begin(), sessionFor))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

func (c *Console) logout(w http.ResponseWriter, r *http.Request, s *session) {
	s.end()
	http.SetCookie(w, cookie(r, "", -time.Second))
	w.WriteHeader(http.StatusNoContent)
}
