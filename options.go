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

// minTTL is the shortest lease. A shorter one is most likely a number without its
// unit.
const minTTL = time.Millisecond

// maxText is the longest name, owner or note, in bytes.
const maxText = 512

// An Option changes one acquisition. A nil Option does nothing. Invalid values
// are reported as ErrInvalidOption by the call that receives them.
type Option func(*request)

// request is the result of all options of one acquisition.
type request struct {
	ttl     time.Duration
	wait    time.Duration
	minHold time.Duration
	owner   string
	note    string
	limit   int

	limited   bool // wait is set
	explicit  bool // owner is set, by WithOwner
	permits   bool // limit is set
	shared    bool
	fixed     bool
	noReentry bool
}

// leaseLength is the length of the first lease, which covers the minimum hold.
func (r *request) leaseLength() time.Duration { return max(r.ttl, r.minHold) }

// WithTTL sets the length of the lease: a millisecond or more, 30 s by default. A
// Lock that is renewed lasts longer; if its process dies, the lease ends by itself.
func WithTTL(d time.Duration) Option { return func(r *request) { r.ttl = d } }

// WithoutRenewal asks for a fixed lease: it ends after TTL, or the minimum hold if that is
// longer (WithMinHold), even if the holder lives, unless Extend lengthens it.
func WithoutRenewal() Option { return func(r *request) { r.fixed = true } }

// WithWait bounds the wait in Acquire. After d Acquire fails with ErrNotAcquired, beside
// ErrUnavailable if the store is away by then, or with ErrUnavailable alone if the store
// has not confirmed that the ticket is queued. Zero means not to wait at all. TryAcquire
// never waits and ignores this option.
func WithWait(d time.Duration) Option {
	return func(r *request) { r.wait, r.limited = d, true }
}

// WithOwner sets the owner, 1 to 512 bytes of UTF-8. Inspect shows it, and on one
// Locker the same owner re-enters what it holds: goroutines with one owner, such as
// one in WithDefaults, do not exclude each other. For a text that is only shown add
// WithoutReentry, or use WithNote. The default owner names the process and does not
// re-enter.
func WithOwner(id string) Option {
	return func(r *request) { r.owner, r.explicit = id, true }
}

// WithNote sets a free text that Inspect shows, at most 512 bytes of UTF-8.
func WithNote(s string) Option { return func(r *request) { r.note = s } }

// WithoutReentry makes the acquisition queue even under a context, or for an owner,
// that already holds the name. It is for goroutines that share the context of a
// held lock and must exclude each other. A holder that waits for its own lock in
// this way, without a limit, waits for ever. What was acquired in this way is
// re-entered under its own context, but not by its owner (WithOwner).
func WithoutReentry() Option { return func(r *request) { r.noReentry = true } }

// WithMinHold sets the minimum hold: nobody else is granted the lock before d after
// its grant, even if it is released earlier, its Client is closed or its process
// ends. It is for jobs that must run once per period on machines whose clocks differ
// (as lockAtLeastFor of ShedLock). The store's first lease is at least d long, so
// that the minimum hold outlasts the process. A store that cannot give such a lease
// refuses with ErrUnsupported. A re-entry cannot ask for more than the first
// acquisition did.
func WithMinHold(d time.Duration) Option { return func(r *request) { r.minHold = d } }

// WithoutDefaults discards the defaults of the Client (WithDefaults, and the ttl of Open's
// URL), and all options before it. It is for packages that build something on a Locker and
// rely on their own options: election, coord and the Elector of adapter/gocron do so.
func WithoutDefaults() Option { return func(r *request) { *r = request{ttl: DefaultTTL} } }

// Shared asks for a shared lock, as a reader: any number of readers hold it at once,
// and no writer with them.
func Shared() Option { return func(r *request) { r.shared = true } }

// Limit asks for one of n permits; it implies Shared. All users of a name as a
// semaphore give the same n.
func Limit(n int) Option {
	return func(r *request) { r.limit, r.permits, r.shared = n, true, true }
}

// read applies the Client's defaults and then opts, and checks the result.
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
	return r.check(c.core)
}

// checkOptions returns ErrInvalidOption if an option of the Client is invalid.
func (c *core) checkOptions() error {
	switch {
	case c.margin < 0:
		return invalid("safety margin %v: want zero or more", c.margin)
	case c.answerTimeout <= 0:
		return invalid("answer timeout %v: want more than zero", c.answerTimeout)
	case c.releaseTimeout <= 0:
		return invalid("release timeout %v: want more than zero", c.releaseTimeout)
	}
	return nil
}

// check returns ErrInvalidOption if an option of the request is invalid.
func (r *request) check(c *core) error {
	switch {
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
	case r.explicit && r.owner == "":
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

// WithDefaults sets options of every acquisition of the Client. The options of the
// call come after them. They do not apply to what election, coord and the Elector of
// adapter/gocron acquire (see WithoutDefaults).
func WithDefaults(opts ...Option) ClientOption {
	return func(c *Client) { c.defaults = append(c.defaults, opts...) }
}

// WithSafetyMargin sets how long before the end of the store's lease its validity
// ends for the holder. The Lock is lost then (Done, its contexts, ErrLost). So a
// write that is already on its way arrives before anybody else is granted the lock,
// and clocks that run at slightly different speeds do no harm. The idea is the
// lock-delay of Chubby (Burrows, OSDI 2006, §2.4), for every store. A TTL must be
// longer than the margin. The default is 1 % of the TTL, the clock drift that
// Redlock assumes.
func WithSafetyMargin(d time.Duration) ClientOption {
	return func(c *Client) { c.margin, c.marginSet = d, true }
}

// WithAnswerTimeout sets how long the store may take to confirm that a ticket is
// granted or queued, and to answer any other request except a release, before the
// call fails with ErrUnavailable. The default is DefaultAnswerTimeout, 10 s. It does
// not bound the wait in the queue: WithWait does.
func WithAnswerTimeout(d time.Duration) ClientOption {
	return func(c *Client) { c.answerTimeout = d }
}

// WithReleaseTimeout sets how long Release and Close wait for a store that does not
// answer. The default is DefaultReleaseTimeout, 5 s. After Release the removal of
// the ticket continues in the background, at the latest until Close.
func WithReleaseTimeout(d time.Duration) ClientOption {
	return func(c *Client) { c.releaseTimeout = d }
}

// WithObserver calls f with every Event of the Client. The context is the one of the
// call that the event belongs to (Acquire or Release). An event in the background has
// a context with the values of the acquisition's. Several observers are called in
// order, also those after one that panics; then the call panics.
//
// f is called from many goroutines, for the events of one ID by one at a time: by the
// call that the event belongs to, or in the background if it belongs to none (renewals
// and losses). Release does not wait for a call of f with an earlier event: the event of
// the release follows in the background, possibly after Release has returned, and Close
// waits for it. So a slow f delays the call that it runs in, and later events. It delays no
// renewal, no loss, no removal of a ticket, and no call for another lock: a lock that is
// lost has ended before f hears of it, and of several renewals a slow f hears of the last.
// f must not call methods of the Lock of the event, break that lock, or close the
// Client.
func WithObserver(f func(context.Context, Event)) ClientOption {
	return func(c *Client) {
		if f != nil {
			c.observers = append(c.observers, f)
		}
	}
}
