package console

import (
	"encoding/json"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

const (
	maxBody      = 16 << 10         // of a request
	answerWithin = 30 * time.Second // for a client that reads slowly

	// The page has no inline script or style, and speaks to nobody but its own
	// server. Trusted Types refuse to make markup out of text.
	contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
		"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; " +
		"require-trusted-types-for 'script'; trusted-types 'none'"
)

// guard is before everything else: which host is asked for, where a request
// that changes something comes from, and what browsers must not do.
func (c *Console) guard(next http.Handler) http.Handler {
	next = c.cross.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", contentPolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin") // with no-referrer a form's Origin would be null
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
		h.Set("Cache-Control", "no-store")
		if !c.knownHost(r.Host) {
			http.Error(w, "this console does not answer to that host name: "+
				"use an IP address or localhost, or name the host with --host", http.StatusMisdirectedRequest)
			return
		}
		deadlines(w, r)
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}

// deadlines bound how long a client may take. A stream, which is a GET, must have
// no deadline for reading: the server would end it.
func deadlines(w http.ResponseWriter, r *http.Request) {
	control, until := http.NewResponseController(w), time.Now().Add(answerWithin)
	_ = control.SetWriteDeadline(until) // tests' recorders know no deadlines
	if r.Method != http.MethodGet {
		_ = control.SetReadDeadline(until)
	}
}

// knownHost refuses DNS rebinding: a page of evil.example whose name now resolves
// to the console's address sends that name. An IP address cannot be rebound.
func (c *Console) knownHost(host string) bool {
	name := hostname(host)
	if _, err := netip.ParseAddr(name); err == nil {
		return true
	}
	return c.hosts[name]
}

func hostSet(names []string) map[string]bool {
	set := map[string]bool{"localhost": true}
	for _, n := range names {
		set[hostname(n)] = true
	}
	return set
}

// hostname is a Host header without its port, in lower case.
func hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// withSession lets those through who are logged in.
func (c *Console) withSession(next func(http.ResponseWriter, *http.Request, *session)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// A page of another port is the same site: its requests have the cookie.
		if from := r.Header.Get("Sec-Fetch-Site"); from != "" && from != "same-origin" && from != "none" {
			refuse(w, http.StatusForbidden, "the request comes from another page")
			return
		}
		s := c.sessions.of(r)
		if s == nil {
			refuse(w, http.StatusUnauthorized, "not logged in")
			return
		}
		next(w, r, s)
	}
}

// answer sends v as JSON.
func answer(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // the client is gone: nobody to tell
}

// refuse sends an error that the page shows.
func refuse(w http.ResponseWriter, status int, text string) {
	answer(w, status, map[string]string{"error": text})
}
