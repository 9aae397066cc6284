package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	sessionFor  = 12 * time.Hour
	maxSessions = 256
	maxWho      = 100
)

// sessions are the browsers that are logged in. They live in this process: a
// restart logs everybody out.
type sessions struct {
	token [sha256.Size]byte
	read  *[sha256.Size]byte // the token of those who only look, or nil

	mu  sync.Mutex
	all map[[sha256.Size]byte]*session // by the digest of the cookie's value
}

// session is one login.
type session struct {
	ctx context.Context // ends with the session, and its streams with it
	end context.CancelFunc
	at  time.Time

	role role
	who  string // as they call themselves; may be empty
}

// role is what a token lets its owner do.
type role int

const (
	stranger role = iota // the token is wrong
	reader               // only look
	operator             // break locks, where the console allows it
)

func newSessions(token, read string) *sessions {
	s := &sessions{token: sha256.Sum256([]byte(token)), all: make(map[[sha256.Size]byte]*session)}
	if read != "" {
		sum := sha256.Sum256([]byte(read))
		s.read = &sum
	}
	return s
}

// roleOf tells what a token is good for. Digests have one length, so the time that
// the comparison takes tells nothing, not even the token's length.
func (s *sessions) roleOf(token string) role {
	sum := sha256.Sum256([]byte(token))
	switch {
	case subtle.ConstantTimeCompare(sum[:], s.token[:]) == 1:
		return operator
	case s.read != nil && subtle.ConstantTimeCompare(sum[:], s.read[:]) == 1:
		return reader
	}
	return stranger
}

// begin makes a session and returns the value of its cookie.
func (s *sessions) begin(r role, who string) string {
	id := rand.Text()
	n := &session{at: time.Now(), role: r, who: who}
	n.ctx, n.end = context.WithTimeout(context.Background(), sessionFor)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prune()
	s.all[sha256.Sum256([]byte(id))] = n
	return id
}

// prune removes the sessions that have ended and, if there are too many, the oldest.
func (s *sessions) prune() {
	maps.DeleteFunc(s.all, func(_ [sha256.Size]byte, n *session) bool { return n.ctx.Err() != nil })
	if len(s.all) >= maxSessions {
		oldest := oldestOf(s.all, func(n *session) time.Time { return n.at })
		s.all[oldest].end()
		delete(s.all, oldest)
	}
}

// oldestOf is the key of the earliest time in a map, which is not empty.
func oldestOf[K comparable, V any](all map[K]V, at func(V) time.Time) K {
	return slices.MinFunc(slices.Collect(maps.Keys(all)), func(a, b K) int { return at(all[a]).Compare(at(all[b])) })
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
	// PostFormValue does not look into the URL, where a token would be logged.
	token := strings.TrimSpace(r.PostFormValue("token"))
	role, wait := c.wrongTokens.try(r.RemoteAddr, func() role { return c.sessions.roleOf(token) })
	if wait > 0 {
		c.log.Warn("console: login refused: too many wrong tokens", "from", r.RemoteAddr, "wait", wait)
		http.Redirect(w, r, "/login?wait="+strconv.Itoa(int(wait/time.Second)+1), http.StatusSeeOther)
		return
	}
	if role == stranger {
		c.log.Warn("console: login refused", "from", r.RemoteAddr)
		http.Redirect(w, r, "/login?refused", http.StatusSeeOther)
		return
	}
	who := whoOf(r.PostFormValue("who"))
	c.log.Info("console: login", "who", who, "only_looks", role == reader, "from", r.RemoteAddr)
	http.SetCookie(w, cookie(r, c.sessions.begin(role, who), sessionFor))
	http.Redirect(w, r, "/", http.StatusSeeOther)
}

// whoOf is the name that somebody gave, of at most maxWho characters.
func whoOf(text string) string {
	name := []rune(strings.TrimSpace(text))
	return string(name[:min(len(name), maxWho)])
}

func (c *Console) logout(w http.ResponseWriter, r *http.Request, s *session) {
	s.end()
	http.SetCookie(w, cookie(r, "", -time.Second))
	w.WriteHeader(http.StatusNoContent)
}
