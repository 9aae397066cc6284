package console

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/lockerproject/locker"
)

const (
	keepEvents = 60               // of one queue
	showFree   = 30 * time.Second // for which an empty queue is still shown
	keepFree   = 10 * time.Minute // for which its events are kept
	maxFree    = 2000             // empty queues that are remembered

	bucket     = 2 * time.Second // of a sparkline
	numBuckets = 60

	// A change that was seen after a longer time than this, as after an outage, has
	// no place in a rate.
	maxCounted = 10 * time.Second

	maxStreamed  = 20   // tickets of a queue that every browser gets
	maxInspected = 1000 // tickets that a lock's own page gets
)

// key tells the tickets of a queue apart. Holders that are not of this library
// may have the same token.
type key struct {
	token uint64
	owner string
}

func keyOf(t locker.Ticket) key { return key{t.Token, t.Owner} }

// record is what the console knows of one queue.
type record struct {
	name   string
	since  time.Time // watched
	at     time.Time // last seen in a poll, empty or not
	last   []locker.Ticket
	lease  map[key]time.Duration // the longest remaining lease seen
	broken map[key]bool          // by this console
	empty  time.Time             // since when nobody is there; zero: somebody is

	grants uint64 // seen so far
	rate   ring[uint16]

	events []event
	seq    uint64 // of the last event
	view   *queueView
}

// The kinds of events.
const (
	queued   = "queued"   // a waiter is new
	granted  = "granted"  // a holder is new, or a waiter became one
	passed   = "passed"   // a waiter went while a later ticket holds: granted and released, or it gave up
	gone     = "left"     // a waiter went, and nobody later holds
	released = "released" // a holder went before its lease ended
	expired  = "expired"  // a holder went when its lease was over
	broken   = "broken"   // this console removed the ticket
)

// event is one difference between two polls. Times are in milliseconds.
type event struct {
	Seq    uint64 `json:"seq"`
	At     int64  `json:"at"`
	Within int64  `json:"within"` // it happened in so long a time before At
	Kind   string `json:"kind"`
	Token  string `json:"token"`
	Owner  string `json:"owner"`
	Shared bool   `json:"shared,omitempty"`
	For    int64  `json:"for,omitempty"` // it had waited, or held
}

// update compares the queue with what was there, and keeps what changed.
func (r *record) update(now []locker.Ticket, at time.Time, within time.Duration) {
	old := make(map[key]locker.Ticket, len(r.last))
	for _, t := range r.last {
		old[keyOf(t)] = t
	}
	leases := make(map[key]time.Duration, len(now))
	var grants int
	var top uint64 // the latest ticket that holds
	var came []event
	for _, t := range now {
		k := keyOf(t)
		was, there := old[k]
		delete(old, k)
		leases[k] = max(r.lease[k], t.Remaining)
		if t.Held {
			top = max(top, t.Token)
		}
		switch {
		case t.Held && !(there && was.Held):
			grants++
			came = append(came, eventOf(granted, t, waited(was, t)))
		case !t.Held && !there:
			came = append(came, eventOf(queued, t, 0))
		}
	}
	var left []event
	for _, t := range r.last { // in order
		if _, is := old[keyOf(t)]; !is {
			continue
		}
		kind := r.endOf(t, at, top)
		if kind == passed {
			grants++
		}
		left = append(left, eventOf(kind, t, age(t, at)))
	}
	r.note(append(left, came...), at, within)
	r.count(grants, at, within)
	r.last, r.lease, r.at = now, leases, at
	maps.DeleteFunc(r.broken, func(k key, _ bool) bool { _, there := leases[k]; return !there })
	if len(now) > 0 {
		r.empty = time.Time{}
	} else if r.empty.IsZero() {
		r.empty = at
	}
}

// endOf says how a ticket ended that is not in the queue any more.
func (r *record) endOf(t locker.Ticket, at time.Time, top uint64) string {
	switch {
	case r.broken[keyOf(t)]:
		return broken
	case t.Held && t.Remaining > 0 && !at.Before(r.at.Add(t.Remaining)):
		return expired
	case t.Held:
		return released
	case t.Token < top:
		return passed
	default:
		return gone
	}
}

func eventOf(kind string, t locker.Ticket, d time.Duration) event {
	return event{
		Kind: kind, Token: strconv.FormatUint(t.Token, 10), Owner: t.Owner, Shared: t.Shared,
		For: max(0, d.Milliseconds()),
	}
}

// waited is how long a holder had queued, both times by the store's clock.
func waited(was, is locker.Ticket) time.Duration {
	if was.Since.IsZero() || is.Since.IsZero() {
		return 0
	}
	return is.Since.Sub(was.Since)
}

func age(t locker.Ticket, at time.Time) time.Duration {
	if t.Since.IsZero() {
		return 0
	}
	return at.Sub(t.Since)
}

// note keeps the newest events, oldest first.
func (r *record) note(es []event, at time.Time, within time.Duration) {
	for _, e := range es {
		r.seq++
		e.Seq, e.At, e.Within = r.seq, at.UnixMilli(), within.Milliseconds()
		r.events = append(r.events, e)
	}
	if over := len(r.events) - keepEvents; over > 0 {
		r.events = slices.Delete(r.events, 0, over)
	}
}

// count puts grants into the bucket of their time.
func (r *record) count(grants int, at time.Time, within time.Duration) {
	if within > maxCounted {
		return
	}
	r.grants += uint64(grants)
	r.rate.advance(at)
	b := r.rate.bucket(r.rate.newest)
	*b = uint16(min(int(*b)+grants, 1<<16-1))
}

// A ring has a value for each bucket of time up to the newest.
type ring[T any] struct {
	values [numBuckets]T
	newest int64 // the number of a bucket
}

func bucketOf(at time.Time) int64 { return at.UnixMilli() / bucket.Milliseconds() }

func (r *ring[T]) bucket(n int64) *T { return &r.values[n%numBuckets] }

// advance empties the buckets that time has come round to.
func (r *ring[T]) advance(at time.Time) {
	n := bucketOf(at)
	for i := max(r.newest+1, n-numBuckets+1); i <= n; i++ {
		*r.bucket(i) = *new(T)
	}
	r.newest = max(r.newest, n)
}

// all are the values, oldest first.
func (r *ring[T]) all(at time.Time) []T {
	r.advance(at)
	first := (r.newest + 1) % numBuckets
	return slices.Concat(r.values[first:], r.values[:first])
}

// sightings are the buckets in which a store was polled: what is not known of the others is
// no zero.
type sightings struct{ ring[bool] }

// add notes a poll that sees what has changed in the time before it.
func (s *sightings) add(at time.Time, within time.Duration, first bool) {
	s.advance(at)
	from := s.newest
	if !first && within <= maxCounted {
		from = bucketOf(at.Add(-within))
	}
	for i := max(from, s.newest-numBuckets+1); i <= s.newest; i++ {
		*s.bucket(i) = true
	}
}

// rates are the grants of each bucket, oldest first; nil if there were none.
func (r *record) rates(at time.Time) []uint16 {
	if rates := r.rate.all(at); slices.Max(rates) > 0 {
		return rates
	}
	return nil
}
