package console

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/queues"
)

// figures are what a scrape says of one store.
type figures struct {
	up, held, holders, waiters int
	longestWait                time.Duration
	unread                     bool // the queues, so that nothing but up is known
}

// metrics answers Prometheus, in its text format: sums over each store, without the names of locks, of which there may be
// many. Each scrape asks the stores once; nothing is polled for it in between.
func (c *Console) metrics(w http.ResponseWriter, r *http.Request) {
	if !c.bearer(w, r) {
		return
	}
	all := make([]figures, len(c.stores))
	var group sync.WaitGroup
	for i, s := range c.stores {
		group.Go(func() { all[i] = s.figures(r) })
	}
	group.Wait()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	for _, m := range []struct {
		name, help string
		of         func(figures) float64
	}{
		{"locker_store_up", "Whether the store answered.", func(f figures) float64 { return float64(f.up) }},
		{"locker_store_locks_held", "Locks that somebody holds.", func(f figures) float64 { return float64(f.held) }},
		{"locker_store_holders", "Tickets that are granted.", func(f figures) float64 { return float64(f.holders) }},
		{"locker_store_waiters", "Tickets that wait.", func(f figures) float64 { return float64(f.waiters) }},
		{"locker_store_longest_wait_seconds", "For how long the ticket has waited that waits longest.", func(f figures) float64 { return f.longestWait.Seconds() }},
	} {
		fmt.Fprintf(w, "# HELP %s %s\n# TYPE %s gauge\n", m.name, m.help, m.name)
		for i, s := range c.stores {
			if all[i].unread && m.name != "locker_store_up" {
				continue
			}
			fmt.Fprintf(w, "%s{store=%s} %g\n", m.name, label(s.Name), m.of(all[i]))
		}
	}
}

// label is the value of a label.
func label(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(text) + `"`
}

// figures asks the store once.
func (s *store) figures(r *http.Request) (f figures) {
	seen, err := queues.Read(r.Context(), s.Source, "")
	if errors.Is(err, locker.ErrUnsupported) { // it cannot list
		f.unread, err = true, s.Source.Ping(r.Context())
	}
	if err != nil {
		return figures{unread: true}
	}
	f.up = 1
	for _, q := range seen {
		holders, waiters, longest := queues.Tally(q.Queue)
		f.holders, f.waiters, f.held = f.holders+holders, f.waiters+waiters, f.held+min(1, holders)
		f.longestWait = max(f.longestWait, age(longest, q.At))
	}
	return f
}

// bearer lets those through who send a token, of either role, with the request. Wrong ones are counted as those of the login are.
func (c *Console) bearer(w http.ResponseWriter, r *http.Request) bool {
	scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " ")
	if !ok || !strings.EqualFold(scheme, "Bearer") {
		w.Header().Set("WWW-Authenticate", "Bearer")
		refuse(w, http.StatusUnauthorized, "want the header Authorization: Bearer TOKEN")
		return false
	}
	role, wait := c.wrongTokens.try(r.RemoteAddr, func() role { return c.sessions.roleOf(strings.TrimSpace(token)) })
	if wait > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)+1))
		refuse(w, http.StatusTooManyRequests, "too many wrong tokens")
		return false
	}
	if role == stranger {
		c.log.Warn("console: metrics refused", "from", r.RemoteAddr)
		refuse(w, http.StatusUnauthorized, "the token is wrong")
		return false
	}
	return true
}
