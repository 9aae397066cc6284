package locker

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"
)

// DefaultTTL is the length of a lease when neither WithTTL, nor WithDefaults,
// nor the URL's ttl says otherwise.
const DefaultTTL = 30 * time.Second

// The bounds for a store that does not answer, where WithAnswerTimeout and
// WithReleaseTimeout do not say otherwise.
const (
	DefaultAnswerTimeout  = 10 * time.Second
	DefaultReleaseTimeout = 5 * time.Second
)

// minTTL is the shortest lease: less is taken for a number without a unit.
const minTTL = time.Millisecond

// maxText is the longest name, owner or note, in bytes.
const maxText = 512

// An Option changes one acquisition. A nil Option does nothing. Invalid values
// are reported as ErrInvalidOption by the call that receives them.
type Option func(*request)

// request is what the options of one acquisition add up to.
type request struct {
	ttl     time.Duration
	fixed   bool
	wait    time.Duration
	limited bool // wait is set
	owner   string
	owned   bool // owner is set
	note    string
	shared  bool
	permits bool // limit is set
	limit   int

	noReentry bool
	minHold   time.Duration
}

// leaseLength is the lease that the request asks for at first: it covers the
// minimum hold.
func (r *request) leaseLength() time.Duration { return max(r.ttl, r.minHold) }

// WithTTL sets the length of the lease, a millisecond or more; the default is
// 30 s. A Lock that is renewed outlives it; when its process dies, the lock passes
// on after it.
func WithTTL(d time.Duration) Option { return func(r *request) { r.ttl = d } }

// WithoutRenewal asks for a fixed lease: it ends after TTL even if the holder
// lives, unless Extend lengthens it.
func WithoutRenewal() Option { return func(r *request) { r.fixed = true } }

// WithWait bounds the wait in Acquire: after d it gives up with
// ErrNotAcquired or, if the store has not said that the ticket is queued, with
// ErrUnavailable. Zero does not wait at all. TryAcquire never waits and ignores
// it.
func WithWait(d time.Duration) Option {
	return func(r *request) { r.wait, r.limited = d, true }
}

// WithOwner names the owner, 1 to 512 bytes of UTF-8. On one Locker the same
// owner re-enters what it holds; Inspect shows it. The default names the
// process and never re-enters.
func WithOwner(id string) Option {
	return func(r *request) { r.owner, r.owned = id, true }
}

// WithNote sets free text that Inspect shows, at most 512 bytes of UTF-8.
func WithNote(s string) Option { return func(r *request) { r.note = s } }

// WithoutReentry makes the acquisition queue even under a context, or for an
// owner, that already holds the name. It is for goroutines that share the
// context of a held lock and must exclude each other. Who holds the name and
// waits for it this way without a limit waits for itself.
func WithoutReentry() Option { return func(r *request) { r.noReentry = true } }

// WithMinHold keeps the lock from being passed on before d after its grant, even
// if it is released earlier, its Client is closed or its process ends: for jobs
// that must run once per period on machines whose clocks differ (as
// lockAtLeastFor of ShedLock). The store's lease is at least d long at first, so
// that a process that dies early keeps the lock from others for that long. A
// store that cannot give such a lease refuses with ErrUnsupported. A re-entry
// cannot ask for more than the first acquisition did.
func WithMinHold(d time.Duration) Option { return func(r *request) { r.minHold = d } }

// Shared asks to be a reader: any number of readers hold at once, and no
// writer with them.
func Shared() Option { return func(r *request) { r.shared = true } }

// Limit asks for one of n permits; it implies Shared. All who use a name as a
// semaphore give the same n.
func Limit(n int) Option {
	return func(r *request) { r.limit, r.permits, r.shared = n, true, true }
}

// read applies the options over the client's defaults and checks them.
func (r *request) read(ctx context.Context, c *Client, opts []Option) error {
	r.ttl = DefaultTTL
	for _, o := range c.defaults {
		if o != nil {
			o(r)
		}
	}
	for _, o := range opts {
		if o != nil {
			o(r)
		}
	}
	if err := r.check(c); err != nil {
		return err
	}
	if r.limited && r.wait > 0 {
		if begun, ok := ctx.Value(begunKey{}).(time.Time); ok {
			r.wait = max(0, r.wait-time.Since(begun))
		}
	}
	return nil
}

func (r *request) check(c *Client) error {
	switch {
	case c.margin < 0:
		return invalid("safety margin %v: want zero or more", c.margin)
	case c.answerTimeout <= 0:
		return invalid("answer timeout %v: want more than zero", c.answerTimeout)
	case c.releaseTimeout <= 0:
		return invalid("release timeout %v: want more than zero", c.releaseTimeout)
	case r.ttl < minTTL:
		return invalid("TTL %v: want %v or more, as in 30*time.Second", r.ttl, minTTL)
	case c.marginOf(r.ttl) >= r.ttl:
		return invalid("TTL %v: want more than the safety margin of %v", r.ttl, c.marginOf(r.ttl))
	case r.minHold < 0:
		return invalid("minimum hold %v: want zero or more", r.minHold)
	case r.limited && r.wait < 0:
		return invalid("wait %v: want zero or more", r.wait)
	case r.permits && r.limit <= 0:
		return invalid("limit %d: want one or more", r.limit)
	case r.owned && r.owner == "":
		return invalid("owner: want 1 to %d bytes, got none", maxText)
	}
	if err := checkText("owner", r.owner); err != nil {
		return err
	}
	return checkText("note", r.note)
}

func checkText(what, s string) error {
	if len(s) > maxText {
		return invalid("%s of %d bytes: want at most %d", what, len(s), maxText)
	}
	if !utf8.ValidString(s) {
		return invalid("%s %q: want valid UTF-8", what, s)
	}
	return nil
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrInvalidOption}, args...)...)
}

func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: empty; want 1 to %d bytes", ErrInvalidName, maxText)
	case len(name) > maxText:
		return fmt.Errorf("%w: %d bytes; want 1 to %d", ErrInvalidName, len(name), maxText)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: %q is not valid UTF-8", ErrInvalidName, name)
	}
	return nil
}

// A ClientOption changes a Client. A nil ClientOption does nothing.
type ClientOption func(*Client)

// WithDefaults sets options that apply to every acquisition of the Client,
// before those of the call.
func WithDefaults(opts ...Option) ClientOption {
	return func(c *Client) { c.defaults = append(c.defaults, opts...) }
}

// WithSafetyMargin sets by how much the store's lease outlasts its validity for
// the holder: the Lock ends (Done, its contexts, ErrLost) d before TTL is over, so
// that a write already on its way lands, and clocks that run at slightly
// different speeds do no harm, before anybody else is granted. The idea is the
// lock-delay of Chubby (Burrows, OSDI 2006, §2.4), for every store. A TTL must
// be longer than the margin. The default is 1 % of the TTL, the drift that
// Redlock assumes.
func WithSafetyMargin(d time.Duration) ClientOption {
	return func(c *Client) { c.margin, c.marginSet = d, true }
}

// WithAnswerTimeout sets how long the store may take to say that a ticket is
// granted or queued, and to answer any other request but a release, before the
// call fails with ErrUnavailable. The default is DefaultAnswerTimeout, 10 s. It
// does not bound the wait in the queue: WithWait does.
func WithAnswerTimeout(d time.Duration) ClientOption {
	return func(c *Client) { c.answerTimeout = d }
}

// WithReleaseTimeout sets how long Release, and Close, wait for a store that does
// not answer. The default is DefaultReleaseTimeout, 5 s. The removal of a ticket
// goes on in the background after Release, and ends with Close.
func WithReleaseTimeout(d time.Duration) ClientOption {
	return func(c *Client) { c.releaseTimeout = d }
}

// WithObserver calls f with every Event of the Client, and with the context of
// the call that the event belongs to: of Acquire, of Release or, for what happens
// in the background, one with the values of the acquisition's. Several
// observers are called in order. f is called synchronously, from many
// goroutines, and must return soon; it must not call methods of the Lock it is
// told of, nor break that lock or close the Client.
func WithObserver(f func(context.Context, Event)) ClientOption {
	return func(c *Client) {
		if f != nil {
			c.observers = append(c.observers, f)
		}
	}
}
