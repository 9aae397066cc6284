package console

import (
	"maps"
	"net"
	"sync"
	"time"
)

const (
	freeTries = 10          // wrong tokens from one address before it has to wait
	delay     = time.Minute // before its next try, and each one after that
	forgetTry = 10 * time.Minute
	maxWrong  = 1024 // addresses that are remembered
)

// wrongTokens counts the wrong tokens of each address. After a few of them the address has to wait
// before each further try. A token of 16 random characters
// cannot be guessed; one that a person has made up might be.
type wrongTokens struct {
	mu   sync.Mutex
	from map[string]*tries
}

type tries struct {
	n    int
	last time.Time
}

// try tells the role of a token, or how long the address has to wait before its next try. The
// look at the count and the counting are one step: tries that come at once are as many as
// those that follow each other. A reader's token forgets no wrong ones: with it in between,
// its owner could try the other one as often as he likes.
func (w *wrongTokens) try(remote string, roleOf func() role) (role, time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.from[address(remote)]; t != nil && t.n >= freeTries && time.Since(t.last) < delay {
		return stranger, delay - time.Since(t.last)
	}
	is := roleOf()
	switch is {
	case stranger:
		w.add(remote)
	case operator:
		delete(w.from, address(remote))
	}
	return is, 0
}

// add counts a wrong token. With mu held.
func (w *wrongTokens) add(remote string) {
	if w.from == nil {
		w.from = make(map[string]*tries)
	}
	w.prune()
	t := w.from[address(remote)]
	if t == nil {
		t = &tries{}
		w.from[address(remote)] = t
	}
	t.n++
	t.last = time.Now()
}

// prune forgets the addresses that have been quiet for long and, if there are too many, the one
// that has been quiet longest. With mu held.
func (w *wrongTokens) prune() {
	maps.DeleteFunc(w.from, func(_ string, t *tries) bool { return time.Since(t.last) > forgetTry })
	if len(w.from) >= maxWrong {
		delete(w.from, oldestOf(w.from, func(t *tries) time.Time { return t.last }))
	}
}

// address is a peer's without its port.
func address(remote string) string {
	if host, _, err := net.SplitHostPort(remote); err == nil {
		return host
	}
	return remote
}
