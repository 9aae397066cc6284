package console

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/lockerproject/locker/internal/queues"
)

// A Source is what the console needs of a store: a *locker.Client is one. It bounds its requests.
type Source interface {
	queues.Source
	Break(ctx context.Context, name string, token uint64) error
	Ping(ctx context.Context) error
	ServerVersion(ctx context.Context) (string, error)
}

// A Store is a Source and the name that people know it by, without credentials. Of several
// with one name, those after the first are shown with a number.
type Store struct {
	Name   string
	Source Source
}

// Options of a Console.
type Options struct {
	// Token is what people log in with: at least MinToken characters.
	Token string
	// ReadToken, unless it is empty, is another one, of those who only look.
	ReadToken string
	// AllowBreak lets those who have logged in with Token break locks. Without it
	// they only look.
	AllowBreak bool
	// Hosts are names, without port, by which browsers reach the console besides
	// localhost and IP addresses.
	Hosts []string
	// Every is the shortest time between two polls of a store; 0 is DefaultEvery.
	Every time.Duration
	// Logger gets logins and breaks, never a token. Nil discards.
	Logger *slog.Logger
}

const (
	// MinToken is the length of the shortest token, in bytes.
	MinToken = 16
	// DefaultEvery is the time between two polls.
	DefaultEvery = time.Second
	// MinEvery is the shortest time that may be asked for.
	MinEvery = 100 * time.Millisecond

	maxStreams = 256 // open at once: each is a browser's tab that is looked at
)

// Console is the http.Handler. Close it to end its goroutines and streams.
type Console struct {
	handler     http.Handler
	options     Options
	hosts       map[string]bool
	sessions    *sessions
	wrongTokens wrongTokens
	stores      []*store
	log         *slog.Logger
	cross       *http.CrossOriginProtection

	streams chan struct{} // one element for each open stream
	ctx     context.Context
	stop    context.CancelFunc
	pollers sync.WaitGroup
}

// New makes a Console over stores that are open, which it does not close.
func New(stores []Store, o Options) (*Console, error) {
	if err := o.check(stores); err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	c := &Console{
		options: o, hosts: hostSet(o.Hosts), sessions: newSessions(o.Token, o.ReadToken), log: o.Logger,
		cross: http.NewCrossOriginProtection(), streams: make(chan struct{}, maxStreams),
	}
	c.options.Token, c.options.ReadToken = "", "" // their digests suffice
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.ctx, c.stop = context.WithCancel(context.Background())
	named := make(map[string]bool)
	for _, s := range stores {
		// Two schemas of one database have one name. In metrics the name is all that tells stores apart.
		given := s.Name
		for n := 2; named[s.Name]; n++ {
			s.Name = fmt.Sprintf("%s (%d)", given, n)
		}
		named[s.Name] = true
		st := newStore(s, o.Every)
		c.stores = append(c.stores, st)
		c.pollers.Go(func() { st.run(c.ctx) })
	}
	c.handler = c.routes()
	return c, nil
}

func (o *Options) check(stores []Store) error {
	if o.Every == 0 {
		o.Every = DefaultEvery
	}
	switch {
	case len(stores) == 0:
		return errors.New("no store to show")
	case len(o.Token) < MinToken:
		return fmt.Errorf("the token has %d characters; it needs at least %d", len(o.Token), MinToken)
	case o.ReadToken != "" && len(o.ReadToken) < MinToken:
		return fmt.Errorf("the token of those who only look has %d characters; it needs at least %d", len(o.ReadToken), MinToken)
	case o.ReadToken == o.Token:
		return errors.New("the token of those who only look is that of those who may break locks")
	case o.Every < MinEvery:
		return fmt.Errorf("polling every %v is too often; the least is %v", o.Every, MinEvery)
	}
	for _, s := range stores {
		if s.Source == nil {
			return fmt.Errorf("the store %q is nil", s.Name)
		}
	}
	return nil
}

// Close ends all streams and sessions, and waits for the pollers.
func (c *Console) Close() {
	c.stop()
	c.sessions.close()
	c.pollers.Wait()
}

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) { c.handler.ServeHTTP(w, r) }

func (c *Console) routes() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /assets/{file}", http.HandlerFunc(serveAsset))
	mux.HandleFunc("GET /favicon.ico", func(w http.ResponseWriter, r *http.Request) { serveFile(w, r, "icon.svg") })
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /metrics", c.metrics)
	mux.HandleFunc("GET /login", c.loginPage)
	mux.HandleFunc("POST /login", c.login)
	mux.HandleFunc("GET /{$}", c.page)
	mux.HandleFunc("POST /logout", c.withSession(c.logout))
	mux.HandleFunc("GET /api/events", c.withSession(c.events))
	mux.HandleFunc("GET /api/queue", c.withSession(c.queue))
	mux.HandleFunc("POST /api/break", c.withSession(c.breakLock))
	return c.guard(mux)
}
