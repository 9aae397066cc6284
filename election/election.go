package election

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/lockerproject/locker"
)

// DefaultTTL is the length of the leader's lease where WithTTL does not say
// otherwise, whatever the default of the Locker is.
const DefaultTTL = 15 * time.Second

var (
	// ErrNoLeader means that nobody leads.
	ErrNoLeader = errors.New("no leader")
	// ErrResign ends the candidacy if the function that Run calls returns it: Run
	// then returns nil.
	ErrResign = errors.New("resign")
	// ErrSteppedDown is the cause of the end of a term's contexts when this process
	// has ended the term itself.
	ErrSteppedDown = errors.New("stepped down")
)

// Election is one candidate of an election, or an observer of it. All methods may
// be called from many goroutines at once.
type Election struct {
	l       locker.Locker
	name    string
	id      string
	note    string
	ttl     time.Duration
	overrun func(token uint64)
	allowed time.Duration // from the end of a term to the call of overrun

	term atomic.Pointer[Term] // the latest
}

// An Option changes an Election. A nil Option does nothing.
type Option func(*Election)

// WithTTL sets the length of the leader's lease: when the leader's process dies,
// the next leader is elected when that lease ends. The default is DefaultTTL.
func WithTTL(d time.Duration) Option { return func(e *Election) { e.ttl = d } }

// WithID names the candidate, for observers: at most 512 bytes of UTF-8. The
// default names the process.
func WithID(id string) Option { return func(e *Election) { e.id = id } }

// WithNote sets free text that observers see, such as the address on which the
// leader serves: at most 512 bytes of UTF-8.
func WithNote(note string) Option { return func(e *Election) { e.note = note } }

// WithOverrun makes Run call f if the function that leads has not returned d after
// its context ended. If d is shorter than the safety margin of the Locker, that is
// before anybody else can be elected, so that f can end the process. f gets the token
// of the term, and is called in a goroutine of its own; Run waits for both functions.
func WithOverrun(d time.Duration, f func(token uint64)) Option {
	return func(e *Election) { e.allowed, e.overrun = d, f }
}

const maxText = 512 // of a name, an ID or a note, in bytes

// New makes a candidate of the election of that name. It does not ask the
// store. A name is valid UTF-8 of at most 486 bytes.
func New(l locker.Locker, name string, opts ...Option) (*Election, error) {
	e := &Election{l: l, name: name, ttl: DefaultTTL}
	for _, o := range opts {
		if o != nil {
			o(e)
		}
	}
	if err := e.check(); err != nil {
		return nil, fmt.Errorf("election %q: %w", name, err)
	}
	return e, nil
}

func (e *Election) check() error {
	switch {
	case e.l == nil:
		return fmt.Errorf("%w: the Locker is nil", locker.ErrInvalidOption)
	case e.name == "" || len(e.name) > maxName || !utf8.ValidString(e.name):
		return fmt.Errorf("%w: want valid UTF-8 of 1 to %d bytes", locker.ErrInvalidName, maxName)
	case e.ttl < time.Millisecond:
		return fmt.Errorf("%w: TTL %v: want %v or more", locker.ErrInvalidOption, e.ttl, time.Millisecond)
	case e.allowed < 0:
		return fmt.Errorf("%w: overrun after %v: want zero or more", locker.ErrInvalidOption, e.allowed)
	case !isText(e.id):
		return fmt.Errorf("%w: ID: want valid UTF-8 of at most %d bytes", locker.ErrInvalidOption, maxText)
	case !isText(e.note):
		return fmt.Errorf("%w: note: want valid UTF-8 of at most %d bytes", locker.ErrInvalidOption, maxText)
	}
	return nil
}

func isText(s string) bool { return len(s) <= maxText && utf8.ValidString(s) }

// Name returns the name of the election.
func (e *Election) Name() string { return e.name }

// Leading returns the term for which this candidate leads now, or nil.
func (e *Election) Leading() *Term {
	if t := e.term.Load(); t != nil && t.Err() == nil {
		return t
	}
	return nil
}

// Campaign waits until the candidate is elected, ctx ends, or the store fails.
// Run survives an outage of the store. ctx bounds the campaign only, not the
// term, which lasts until Term.StepDown or until the leadership is lost.
func (e *Election) Campaign(ctx context.Context) (*Term, error) { return e.campaign(ctx, false) }

func (e *Election) campaign(ctx context.Context, run bool) (*Term, error) {
	k, err := locker.NewMutex(e.l, e.name).Lock(ctx, e.ticket(e.note, e.ttl)...)
	if err != nil {
		return nil, fmt.Errorf("election %q: %w", e.name, err)
	}
	t := newTerm(e, k, run)
	e.term.Store(t)
	return t, nil
}

// ticket returns the options that all tickets of a candidate have, whatever the defaults of
// the Locker are. Two candidates of one Locker may have the same ID, and a campaign may
// begin under the context of another term: neither re-enters.
func (e *Election) ticket(note string, ttl time.Duration) []locker.Option {
	opts := []locker.Option{
		locker.WithoutDefaults(), locker.WithTTL(ttl), locker.WithNote(note), locker.WithoutReentry(),
	}
	if e.id != "" {
		opts = append(opts, locker.WithOwner(e.id))
	}
	return opts
}
