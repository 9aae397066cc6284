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

// maxText is the longest name, owner or note, in bytes.
const maxText = 512

// An Option changes one acquisition. A nil Option does nothing. What makes no
// sense is ErrInvalidOption from the call that was given it.
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
}

// WithTTL sets the length of the lease; the default is 30 s. A Lock that is
// renewed outlives it; when its process dies, the lock passes on after it.
func WithTTL(d time.Duration) Option { return func(r *request) { r.ttl = d } }

// WithoutRenewal asks for a fixed lease: it ends after TTL even if the holder
// lives, unless Extend lengthens it.
func WithoutRenewal() Option { return func(r *request) { r.fixed = true } }

// WithWait bounds the wait in Acquire: after d it gives up with
// ErrNotAcquired. Zero does not wait at all. TryAcquire never waits and
// ignores it.
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

// Shared asks to be a reader: any number of readers hold at once, and no
// writer with them.
func Shared() Option { return func(r *request) { r.shared = true } }

// Limit asks for one of n permits; it implies Shared. All who use a name as a
// semaphore give the same n.
func Limit(n int) Option {
	return func(r *request) { r.limit, r.permits, r.shared = n, true, true }
}

// read applies the options over the client's defaults and checks them.
func (r *request) read(c *Client, opts []Option) error {
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
	return r.check(c)
}

func (r *request) check(c *Client) error {
	switch {
	case c.grace < 0:
		return invalid("grace %v: want zero or more", c.grace)
	case r.ttl <= 0:
		return invalid("TTL %v: want more than zero", r.ttl)
	case c.graceOf(r.ttl) >= r.ttl:
		return invalid("TTL %v: want more than the grace of %v", r.ttl, c.graceOf(r.ttl))
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

// WithSafetyMargin sets by how much the store's lease outlasts the holder's trust in
// it: the Lock ends (Done, its contexts, ErrLost) d before TTL is over, so
// that a write already on its way lands, and clocks that run at slightly
// different speeds do no harm, before anybody else is granted. The idea is the
// lock-delay of Chubby (Burrows, OSDI 2006, §2.4), for every store. A TTL must
// be longer than the grace. The default is 1 % of the TTL, the drift that
// Redlock assumes.
func WithSafetyMargin(d time.Duration) ClientOption {
	return func(c *Client) { c.grace, c.graceSet = d, true }
}

// WithObserver calls f with every Event of the Client. Several observers are
// called in order. f is called synchronously, from many goroutines, and must
// return soon; it must not call methods of the Lock it is told of.
func WithObserver(f func(context.Context, Event)) ClientOption {
	return func(c *Client) {
		if f != nil {
			c.observers = append(c.observers, f)
		}
	}
}

// graceOf is the grace for a lease of the given length.
func (c *Client) graceOf(ttl time.Duration) time.Duration {
	if c.graceSet {
		return c.grace
	}
	return ttl / 100
}
