package casqueue

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
)

// format is the version of the documents. Programs of two versions must not use the same ones.
const format = 1

// How long the store keeps a document after it was written.
const (
	keepTickets = time.Minute      // longer than anybody waits for signs of life of its tickets
	keepEmpty   = 30 * time.Second // one without tickets, for its counters
)

// document is the content of a document: the queues of all names whose hash is in its key. That is one name unless
// hashes collide.
type document struct {
	Format int      `json:"v"`
	Queues []*queue `json:"q,omitempty"`
}

// queue is the queue of a name.
type queue struct {
	Name    string   `json:"n"`
	Last    uint64   `json:"l"` // the number of the newest ticket
	Tickets []record `json:"t,omitempty"`

	// Hold is about how long a ticket is held, divided by the number of tickets that are held at once: so many tickets
	// go away in a time, besides those whose processes die, or do not wait any longer.
	Hold time.Duration `json:"h,omitempty"`
}

// record is a ticket in a document.
type record struct {
	ID      string        `json:"i"`
	Process string        `json:"p"`
	Token   uint64        `json:"k"`
	Owner   string        `json:"o,omitempty"`
	Note    string        `json:"m,omitempty"`
	Shared  bool          `json:"s,omitempty"`
	Limit   int           `json:"c,omitempty"`
	TTL     time.Duration `json:"d"`
	Lease   int           `json:"e,omitempty"` // counts the writes that began its lease anew; 0: a waiter, or a provisional lease
	Fixed   bool          `json:"f,omitempty"` // heartbeats do not renew its lease
	Polls   bool          `json:"r,omitempty"` // its process reads this queue to learn of the grant, and needs no notification
	Since   int64         `json:"w"`           // for people: of the grant or of queueing, in milliseconds of a wall clock

	Observed *observation `json:"b,omitempty"`

	seen     time.Time // since when this process has seen the record as it is, by its monotonic clock; zero: it has not yet
	recalled bool      // what others had observed of it then is part of that
}

// decode parses a document. No document is an empty one. What no program of this format writes is refused: the engine
// would take it for a queue that is shorter than it is, or for tickets that have expired.
func decode(value []byte) (*document, error) {
	if len(value) == 0 {
		return &document{Format: format}, nil
	}
	d := new(document)
	err := json.Unmarshal(value, d)
	switch {
	case err != nil:
	case d.Format == 0:
		err = errors.New("it has no format")
	case d.Format != format:
		return nil, fmt.Errorf("the document has format %d, and this program knows format %d: use one version of locker for all programs",
			d.Format, format)
	default:
		err = d.check()
	}
	if err != nil {
		return nil, fmt.Errorf("this is not a document of locker: %w", err)
	}
	return d, nil
}

// check refuses queues that would be overlooked.
func (d *document) check() error {
	for i, q := range d.Queues {
		if q == nil {
			return errors.New("a queue is missing")
		}
		if slices.IndexFunc(d.Queues, func(o *queue) bool { return o != nil && o.Name == q.Name }) < i {
			return fmt.Errorf("the queue of %q is there twice", q.Name)
		}
		if err := q.check(); err != nil {
			return fmt.Errorf("the queue of %q: %w", q.Name, err)
		}
	}
	return nil
}

// check refuses tickets that are not in the order of their tokens, and times and numbers that no program writes.
func (q *queue) check() error {
	if q.Last > math.MaxInt64 {
		return fmt.Errorf("its last number is %d", q.Last)
	}
	if q.Hold < 0 {
		return fmt.Errorf("its tickets are held for %v", q.Hold)
	}
	last := uint64(0)
	for i := range q.Tickets {
		r := &q.Tickets[i]
		if r.Token <= last || r.Token > q.Last {
			return fmt.Errorf("ticket %d has the number %d, after %d and with %d as the last", i+1, r.Token, last, q.Last)
		}
		if r.ID == "" || r.TTL < 0 || r.TTL > century || r.Limit < 0 || r.Lease < 0 || r.Lease == math.MaxInt {
			return fmt.Errorf("ticket %d is not one of locker's", r.Token)
		}
		last = r.Token
	}
	return nil
}

// spare returns the blanks that a large document has at its end after a ticket is queued. Leases are written in their
// place. So a queue without space for another ticket has space for the leases of those that it has.
func spare(value []byte) []byte {
	const large = 8 << 10
	if len(value) < large {
		return nil
	}
	return bytes.Repeat([]byte{' '}, len(value)/16)
}

// clone copies what may be changed.
func (d *document) clone() *document {
	c := &document{Format: d.Format, Queues: make([]*queue, len(d.Queues))}
	for i, q := range d.Queues {
		copied := *q
		copied.Tickets = slices.Clone(q.Tickets)
		c.Queues[i] = &copied
	}
	return c
}

// see notes which records are seen for the first time as they are.
func (d *document) see(now time.Time) {
	for _, q := range d.Queues {
		for i := range q.Tickets {
			if r := &q.Tickets[i]; r.seen.IsZero() {
				r.seen, r.recalled = now, r.Observed == nil
			}
		}
	}
}

// carry takes over what was seen of records that are the same in an older document. Both are in the order of tokens.
func (d *document) carry(old *document) {
	for _, q := range d.Queues {
		known := old.find(q.Name)
		if q.Hold == 0 { // a program of an older version has written it
			q.Hold = known.Hold
		}
		before := known.Tickets
		for i := range q.Tickets {
			r := &q.Tickets[i]
			for len(before) > 0 && before[0].Token < r.Token {
				before = before[1:]
			}
			if len(before) > 0 && r.same(&before[0]) {
				r.seen, r.recalled = before[0].seen, before[0].recalled
			}
		}
	}
}

// size is how many tickets the document has.
func (d *document) size() (n int) {
	for _, q := range d.Queues {
		n += len(q.Tickets)
	}
	return n
}

// keep is how long the store has to keep the document.
func (d *document) keep() time.Duration {
	longest := keepEmpty - keepTickets
	for _, q := range d.Queues {
		for i := range q.Tickets {
			longest = max(longest, patience(q.Tickets[i].life()))
		}
	}
	return longest + keepTickets
}

// find returns the queue of name; without one, a queue that is in no document.
func (d *document) find(name string) *queue {
	for _, q := range d.Queues {
		if q.Name == name {
			return q
		}
	}
	return &queue{Name: name}
}

// mostLag is how far numbers may be behind the wall clock. To bring back a store that has lost its last changes takes
// longer than that. With a smaller lag, clocks would have to agree more closely when the store has lost everything.
const mostLag = 2 * time.Second

// open returns the queue of name, and makes it if necessary. The store may have forgotten or lost an earlier one, so the
// numbers begin with the wall clock, in microseconds, or with known, the highest that this process has seen, if that is
// more. The clock is beyond all earlier numbers unless it was set back, or a million numbers a second were given. A
// store that has lost its last changes has lost the last numbers too, so those of an old queue follow the clock.
func (d *document) open(name string, known uint64) *queue {
	now := time.Now()
	q := d.find(name)
	if q.Last == 0 {
		q.Last = max(uint64(now.UnixMicro()), known) //nolint:gosec // after 1970
		d.Queues = append(d.Queues, q)
	}
	q.Last = max(q.Last, uint64(max(0, now.Add(-mostLag).UnixMicro()))) //nolint:gosec // not negative
	return q
}

// index returns the position of a ticket, or -1.
func (q *queue) index(id string) int {
	return slices.IndexFunc(q.Tickets, func(r record) bool { return r.ID == id })
}

// average is a moving average of durations. It follows shorter ones faster, and one that is much longer than the others hardly
// counts: who takes a time for longer than it is reads a queue too late, which delays all behind, and who takes it for shorter
// sends a request more.
func average(mean, next time.Duration) time.Duration {
	if next < mean {
		return mean - (mean-next)/4
	}
	return mean + (min(next, 4*mean+time.Millisecond)-mean)/8
}

// held notes how long a ticket was held that is released.
func (q *queue) held(hold time.Duration) {
	granted := 0
	for _, is := range driver.Granted(q.views()) {
		if is {
			granted++
		}
	}
	q.Hold = average(q.Hold, hold/time.Duration(max(granted, 1)))
}

// remove takes out the ticket at i.
func (q *queue) remove(i int) { q.Tickets = slices.Delete(q.Tickets, i, i+1) }

// expire removes all tickets, and keeps the counters.
func (d *document) expire() {
	for _, q := range d.Queues {
		q.Tickets = nil
	}
}

// views returns the queue for the grant rule.
func (q *queue) views() []driver.Ticket {
	views := make([]driver.Ticket, len(q.Tickets))
	for i := range q.Tickets {
		views[i].Shared, views[i].Limit = q.Tickets[i].Shared, q.Tickets[i].Limit
	}
	return views
}

// smallQueue is the size of a document that a process that waits reads itself. With its key it is read for the price of a
// notification (DynamoDB: 4 KB).
const smallQueue = 4<<10 - 256

// encode returns the document as it is stored. If it is not small, all its tickets need notifications from now on.
func (d *document) encode() ([]byte, error) {
	value, err := json.Marshal(d)
	if err != nil || len(value) <= smallQueue || !d.needNotifications() {
		return value, err
	}
	return json.Marshal(d)
}

// needNotifications notes that no process reads the queues to learn of its grants, and reports whether one did.
func (d *document) needNotifications() (did bool) {
	for _, q := range d.Queues {
		for i := range q.Tickets {
			did = did || q.Tickets[i].Polls
			q.Tickets[i].Polls = false
		}
	}
	return did
}

// add queues a ticket.
func (q *queue) add(r *driver.Request, process string) {
	q.Last++
	q.Tickets = append(q.Tickets, record{
		ID: r.ID, Process: process, Token: q.Last, Owner: r.Owner, Note: r.Note,
		Shared: r.Shared, Limit: r.Limit, TTL: r.TTL, Since: time.Now().UnixMilli(),
	})
}

// hold begins the lease of a ticket that is granted, or begins it anew.
func (r *record) hold(ttl time.Duration, fixed bool) {
	if r.Lease == 0 {
		r.Since = time.Now().UnixMilli()
	}
	r.Lease++
	r.TTL, r.Fixed = ttl, fixed
	r.seen, r.recalled, r.Observed = time.Time{}, false, nil
}

// same reports whether the records are the same, but for what was observed of them.
func (r *record) same(o *record) bool {
	return r.Token == o.Token && r.ID == o.ID && r.Lease == o.Lease
}

// ownLease reports whether the record alone shows that the ticket lives: heartbeats do not renew its lease.
func (r *record) ownLease() bool { return r.Fixed && r.Lease > 0 }

// life is how long the ticket lives without a sign of life. A waiter may have been granted without a write, so its life
// is also the length of its provisional lease.
func (r *record) life() time.Duration { return lifeOf(r.TTL, r.Lease > 0) }

func lifeOf(ttl time.Duration, leased bool) time.Duration {
	if leased {
		return ttl
	}
	return min(ttl, liveness)
}
