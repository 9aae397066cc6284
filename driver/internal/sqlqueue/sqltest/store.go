package sqltest

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// Tables are a store that nobody else uses.
type Tables struct {
	Store sqlqueue.Store
	Rows  func() (n int, err error) // of tickets and processes
	Late  bool                      // Take may be late
	// Renew begins a transaction that makes a process, or the exclusive holder of a name, live for an hour, whether it has expired or
	// not. nil: transactions are executed in turn.
	Renew func(process int64, name string) (commit func() error, err error)
}

// StoreKeepsItsRules checks what the comments of sqlqueue.Store say, by requests in turn: the answer to each, and what is in the
// queue afterwards.
func StoreKeepsItsRules(t *testing.T, tables Tables) {
	t.Helper()
	for _, c := range storeCases {
		if c.late && !tables.Late || c.slow && tables.Renew == nil {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			q := &queue{t: t, Tables: tables, name: "n" + rand.Text(), tokens: make(map[string]uint64)}
			q.p, q.other = q.process(time.Hour), q.process(time.Hour)
			taken := q.taken()
			beside := q.beside("x" + q.name)
			c.play(q)
			beside()
			taken()
		})
	}
}

// A queue is that of one name. Tickets are named by letters there.
type queue struct {
	t *testing.T
	Tables
	name     string
	p, other int64 // processes that live
	tokens   map[string]uint64
	read     time.Time // when the database's clock was read
	now      int64     // what it said
}

func (q *queue) ok(err error) {
	q.t.Helper()
	if err != nil {
		q.t.Fatal(err)
	}
}

// is checks an answer.
func (q *queue) is(what string, got, want any) {
	q.t.Helper()
	if g, w := fmt.Sprint(got), fmt.Sprint(want); g != w {
		q.t.Fatalf("%s: got %s, want %s; the queue is %q", what, g, w, q.show())
	}
}

// process registers a process.
func (q *queue) process(life time.Duration) int64 {
	q.t.Helper()
	var b [7]byte
	_, _ = rand.Read(b[:])
	id := int64(b[0]) + 1
	for _, n := range b[1:] {
		id = id<<8 | int64(n)
	}
	h, err := q.Store.Heartbeat(q.t.Context(), id, life, true)
	q.ok(err)
	q.is("the number of the first heartbeat", h.Number, 1)
	return id
}

// expire lets a process expire.
func (q *queue) expire(p int64) {
	q.t.Helper()
	h, err := q.Store.Heartbeat(q.t.Context(), p, time.Microsecond, false)
	q.ok(err)
	q.is("a process that lives has sent a heartbeat", h.Number > 0, true)
	time.Sleep(time.Millisecond)
}

// end lets a lease end.
func (q *queue) end(letter string) {
	q.t.Helper()
	held, err := q.Store.Shorten(q.t.Context(), q.hold(letter), 0)
	q.ok(err)
	q.is("the lease of "+letter+" was not over", held, true)
	time.Sleep(time.Millisecond)
}

// id is the ID of a ticket.
func (q *queue) id(letter string) string { return strings.ToLower(letter + "-" + q.name) }

func (q *queue) hold(letter string) driver.Hold {
	return driver.Hold{Name: q.name, ID: q.id(letter), Token: q.tokens[letter], Shared: letter >= "r"}
}

// request is for a ticket: from r on it is shared.
func (q *queue) request(letter string, change ...func(*driver.Request)) driver.Request {
	r := driver.Request{Name: q.name, ID: q.id(letter), TTL: time.Hour, Wait: true, Shared: letter >= "r"}
	for _, c := range change {
		c(&r)
	}
	return r
}

func limit(n int) func(*driver.Request)           { return func(r *driver.Request) { r.Limit = n } }
func ttl(d time.Duration) func(r *driver.Request) { return func(r *driver.Request) { r.TTL = d } }
func (q *queue) until() int64                     { return q.now + (time.Since(q.read) + time.Hour).Microseconds() }

func (q *queue) ids(letters string) (ids []string) {
	for l := range strings.FieldsSeq(letters) {
		ids = append(ids, q.id(l))
	}
	return ids
}

// take asks for a ticket, and checks the answer and the letters of what it grants to others of the process.
func (q *queue) take(p int64, letter string, want sqlqueue.Result, grants string, change ...func(*driver.Request)) sqlqueue.Answer {
	q.t.Helper()
	r := q.request(letter, change...)
	a, err := q.Store.Take(q.t.Context(), p, r, q.until)
	for err == nil && a.Result == sqlqueue.Late && want != sqlqueue.Late {
		q.now, q.read = a.Now, time.Now()
		a, err = q.Store.Take(q.t.Context(), p, r, q.until)
	}
	q.ok(err)
	q.is("the answer to a request for "+letter, a.Result, want)
	q.granted(a.Grants, grants)
	switch tickets := q.tickets(); a.Result {
	case sqlqueue.Granted, sqlqueue.Queued:
		i := slices.IndexFunc(tickets, func(t driver.Ticket) bool { return t.ID == r.ID })
		if i < 0 || a.Token != 0 && tickets[i].Token != a.Token {
			q.t.Fatalf("%s has the token %d, and the queue is %+v", letter, a.Token, tickets)
		}
		q.tokens[letter] = tickets[i].Token
	}
	return a
}

// granted checks grants.
func (q *queue) granted(grants []sqlqueue.Grant, letters string) {
	q.t.Helper()
	var got []string
	for _, g := range grants {
		got = append(got, g.ID)
	}
	q.is("grants", got, q.ids(letters))
	for i, l := range strings.Fields(letters) {
		q.is("the token of "+l, grants[i].Token, q.tokens[l])
	}
}

func (q *queue) tickets() []driver.Ticket {
	q.t.Helper()
	all, err := q.Store.Queue(q.t.Context(), q.name)
	q.ok(err)
	return all
}

// show returns the letters of the tickets in the queue, in order, with ! for those that are held.
func (q *queue) show() string {
	q.t.Helper()
	var all []string
	for _, t := range q.tickets() {
		held := ""
		if t.Held {
			held = "!"
		}
		letter, _, _ := strings.Cut(t.ID, "-")
		all = append(all, letter+held)
	}
	return strings.Join(all, " ")
}

// letters is show without the marks.
func (q *queue) letters() string {
	q.t.Helper()
	return strings.ReplaceAll(q.show(), "!", "")
}

func (q *queue) has(want string) {
	q.t.Helper()
	if got := q.show(); got != want {
		q.t.Fatalf("the queue is %q, want %q", got, want)
	}
}

// left returns what is left of the lease of a ticket.
func (q *queue) left(letter string) time.Duration {
	q.t.Helper()
	for _, t := range q.tickets() {
		if t.ID == q.id(letter) {
			return t.Remaining
		}
	}
	return 0
}

// between checks a time.
func (q *queue) between(what string, d, least, most time.Duration) {
	q.t.Helper()
	if d < least || d > most {
		q.t.Fatalf("%s is %v, want %v to %v", what, d, least, most)
	}
}

// remove removes a ticket, and checks the answer.
func (q *queue) remove(p int64, letter string, found bool, grants string) {
	q.t.Helper()
	r, err := q.Store.Remove(q.t.Context(), p, q.hold(letter))
	q.ok(err)
	q.is(letter+" was there", r.Found, found)
	q.granted(r.Grants, grants)
}

// breaks is remove by the token.
func (q *queue) breaks(p int64, letter string, found bool, grants string) {
	q.t.Helper()
	r, err := q.Store.Break(q.t.Context(), p, q.name, q.tokens[letter])
	q.ok(err)
	q.is(letter+" was there", r.Found, found)
	q.granted(r.Grants, grants)
}

// advance lets the queue move on.
func (q *queue) advance(p int64, grants string) {
	q.t.Helper()
	g, err := q.Store.Advance(q.t.Context(), p, q.name)
	q.ok(err)
	q.granted(g, grants)
}

// due returns when the queue is due, and checks that nothing changes.
func (q *queue) due(p int64, first bool) time.Duration {
	q.t.Helper()
	before := q.rows()
	all, err := q.Store.Due(q.t.Context(), p, []string{"nobody's" + q.name, q.name})
	q.ok(err)
	q.is("the rows after Due", q.rows(), before)
	q.is("whether the first waiter is of this process", []bool{all[0].First, all[1].First}, []bool{false, first})
	if all[0].In <= 0 {
		q.t.Fatalf("a name that nobody uses is due in %v", all[0].In)
	}
	return all[1].In
}

func (q *queue) rows() int {
	q.t.Helper()
	n, err := q.Rows()
	q.ok(err)
	return n
}

// sweep removes what has expired for a second.
func (q *queue) sweep() {
	q.t.Helper()
	for last, more := "", true; more; more = last != "" {
		var err error
		var busy int64
		last, busy, err = q.Store.Sweep(q.t.Context(), last)
		q.ok(err)
		q.is("queues in use", busy, 0)
	}
}

// renew renews leases, and checks which are renewed.
func (q *queue) renew(d time.Duration, renewed []int, holds ...driver.Hold) {
	q.t.Helper()
	var rs []driver.Renewal
	for _, h := range holds {
		rs = append(rs, driver.Renewal{Hold: h, TTL: d})
	}
	got, err := q.Store.Renew(q.t.Context(), rs)
	q.ok(err)
	q.is("renewed", got, renewed)
}

// mine checks which tickets of a process wait or have a provisional lease, and returns them.
func (q *queue) mine(p int64, all bool, want string) []sqlqueue.Ticket {
	q.t.Helper()
	m, err := q.Store.Mine(q.t.Context(), p, all)
	q.ok(err)
	slices.SortFunc(m.Tickets, func(a, b sqlqueue.Ticket) int { return cmp.Compare(a.Token, b.Token) })
	var got []string
	for _, t := range m.Tickets {
		letter, _, _ := strings.Cut(t.ID, "-")
		if t.Held {
			letter += "!"
		}
		got = append(got, letter)
	}
	if g := strings.Join(got, " "); g != want {
		q.t.Fatalf("the process has %q, want %q", g, want)
	}
	return m.Tickets
}

// beside fills another queue, and returns a check that nothing of it has changed. What q does to tickets by their IDs or tokens
// under the wrong name has to fail.
func (q *queue) beside(name string) func() {
	q.t.Helper()
	x := &queue{t: q.t, Tables: q.Tables, name: name, tokens: make(map[string]uint64)}
	x.p = x.process(time.Hour)
	x.take(x.p, "a", sqlqueue.Granted, "")
	x.take(x.p, "b", sqlqueue.Queued, "")
	x.take(x.p, "r", sqlqueue.Queued, "")
	before := x.tickets()
	return func() {
		q.t.Helper()
		for l, token := range x.tokens {
			h := x.hold(l)
			h.Name = q.name
			r, err := q.Store.Remove(q.t.Context(), q.p, h)
			q.ok(err)
			q.is("a ticket of another name was removed", r.Found, false)
			r, err = q.Store.Break(q.t.Context(), q.p, q.name, token)
			q.ok(err)
			q.is("a ticket of another name was broken", r.Found, false)
			q.renew(10*time.Hour, nil, h)
			held, err := q.Store.Shorten(q.t.Context(), h, 0)
			q.ok(err)
			q.is("a ticket of another name was shortened", held, false)
		}
		q.is("how many are in another queue", len(x.tickets()), len(before))
		for i, after := range x.tickets() {
			q.between("the time that has passed in another queue", before[i].Remaining-after.Remaining, 0, 20*time.Minute)
			q.between("the time that a ticket there has moved", after.Since.Sub(before[i].Since).Abs(), 0, time.Second)
			after.Remaining, after.Since = before[i].Remaining, before[i].Since
			q.is("a ticket in another queue", after, before[i])
		}
		x.mine(x.p, true, "b r")
	}
}

// taken fills two other queues that look free, and returns a check that they are not: the lease of a holder is over, and another is the
// next; and of two readers the first has left.
func (q *queue) taken() func() {
	q.t.Helper()
	y := &queue{t: q.t, Tables: q.Tables, name: "y" + q.name, tokens: make(map[string]uint64)}
	y.p = y.process(time.Hour)
	z := *y
	z.name, z.tokens = "z"+q.name, make(map[string]uint64)
	z.take(z.p, "r", sqlqueue.Granted, "")
	z.take(z.p, "s", sqlqueue.Granted, "")
	z.remove(z.p, "r", true, "")
	y.take(y.p, "a", sqlqueue.Granted, "")
	y.take(y.p, "b", sqlqueue.Queued, "")
	y.end("a")
	return func() {
		q.t.Helper()
		for _, o := range []*queue{y, &z} {
			a, err := o.Store.Take(q.t.Context(), o.p, o.request("c", try), y.until)
			q.ok(err)
			q.is("the answer where another is the next", a.Result, sqlqueue.Refused)
		}
	}
}

// during makes a request while a transaction is about to be committed, which it may wait for or not.
func (q *queue) during(commit, request func() error) {
	q.t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- request() }()
	var err error
	select {
	case err = <-ended:
		q.ok(commit())
	case <-time.After(time.Second):
		q.ok(commit())
		err = <-ended
	}
	q.ok(err)
}
