package sqltest

import (
	"slices"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

const (
	granted = sqlqueue.Granted
	waits   = sqlqueue.Queued
)

// storeCases are plays on one queue. Tickets from r on are shared; ! marks those that are held.
var storeCases = []struct {
	name string
	late bool // only where Take may be late
	slow bool // only where a commit may be slow, while others go on
	play func(q *queue)
}{
	{"asked again", false, false, func(q *queue) {
		q.take(q.p, "a", granted, "")
		token := q.tokens["a"]
		q.take(q.p, "a", granted, "", ttl(10*time.Hour))
		q.between("the lease", q.left("a"), 9*time.Hour, 10*time.Hour)
		q.take(q.p, "a", granted, "", ttl(time.Second))
		q.between("the lease", q.left("a"), 9*time.Hour, 10*time.Hour)
		q.is("the token", q.tokens["a"], token)
		q.take(q.other, "b", waits, "")
		q.take(q.other, "b", waits, "")
		q.take(q.other, "r", waits, "")
		q.take(q.other, "r", waits, "")
		q.has("a! b r")
		q.remove(q.p, "a", true, "")
		q.take(q.other, "b", granted, "")
		q.has("b! r")
	}},
	{"asked again, of readers", false, false, func(q *queue) {
		q.take(q.p, "r", granted, "")
		q.take(q.p, "s", granted, "")
		q.take(q.p, "b", waits, "")
		q.take(q.p, "b", waits, "")
		q.take(q.p, "t", waits, "")
		q.take(q.p, "t", waits, "")
		token := q.tokens["s"]
		q.take(q.p, "s", granted, "", ttl(10*time.Hour))
		q.is("the token", q.tokens["s"], token)
		q.between("the lease", q.left("s"), 9*time.Hour, 10*time.Hour)
		q.between("the other lease", q.left("r"), 0, time.Hour)
		q.has("r! s! b t")
	}},
	{"taken anew", false, false, func(q *queue) {
		for _, l := range []string{"a", "r"} {
			q.take(q.p, l, granted, "")
			former := q.hold(l)
			q.breaks(q.other, l, true, "")
			q.take(q.p, l, granted, "")
			q.is("the token grows", q.tokens[l] > former.Token, true)
			q.renew(10*time.Hour, nil, former)
			q.renew(10*time.Hour, []int{1}, former, q.hold(l))
			q.renew(10*time.Hour, []int{0}, q.hold(l), former)
			held, err := q.Store.Shorten(q.t.Context(), former, 0)
			q.ok(err)
			q.is("the former lease goes on", held, false)
			q.between("the lease", q.left(l), 9*time.Hour, 10*time.Hour)
			q.remove(q.p, l, true, "")
		}
	}},
	{"refused", false, false, func(q *queue) {
		q.take(q.p, "a", granted, "")
		q.take(q.p, "b", sqlqueue.Refused, "", try)
		q.take(q.p, "r", sqlqueue.Refused, "", try)
		q.has("a!")
		q.remove(q.p, "a", true, "")
		q.take(q.p, "r", granted, "", try)
		q.take(q.p, "b", sqlqueue.Refused, "", try)
		q.take(q.p, "s", sqlqueue.Refused, "", try, limit(1))
		q.take(q.p, "s", granted, "", try, limit(2))
		q.take(q.p, "t", sqlqueue.Refused, "", try, limit(2))
		q.take(q.p, "b", waits, "")
		q.take(q.p, "t", sqlqueue.Refused, "", try)
		q.take(q.p, "t", waits, "")
		q.has("r! s! b t")
	}},
	{"processes without a row", false, false, func(q *queue) {
		gone := q.process(time.Hour)
		q.ok(q.Store.Leave(q.t.Context(), gone))
		expired := q.process(time.Hour)
		q.expire(expired)
		q.take(gone, "a", granted, "")
		for _, p := range []int64{gone, expired} {
			q.take(p, "b", sqlqueue.Unregistered, "")
			q.take(p, "r", sqlqueue.Unregistered, "")
		}
		q.has("a!")
		q.remove(gone, "a", true, "")
		q.take(gone, "r", granted, "")
		for _, p := range []int64{gone, expired} {
			q.take(p, "b", sqlqueue.Unregistered, "")
			q.take(p, "s", sqlqueue.Unregistered, "", limit(1))
		}
		q.has("r!")
		h, err := q.Store.Heartbeat(q.t.Context(), gone, time.Hour, false)
		q.ok(err)
		q.is("the heartbeat of a process that has left", h.Number, 0)
		h, err = q.Store.Heartbeat(q.t.Context(), expired, time.Hour, false)
		q.ok(err)
		q.is("the heartbeat of a process that has expired", h.Number, 0)
	}},
	{"late", true, false, func(q *queue) {
		q.take(q.p, "a", granted, "") // the clock is known
		now := q.until() - time.Hour.Microseconds()
		for range 2 { // a free name, and one in use
			for _, l := range []string{"b", "r"} {
				a, err := q.Store.Take(q.t.Context(), q.p, q.request(l), func() int64 { return now - 1000 })
				q.ok(err)
				q.is("the answer to a request that is late", a.Result, sqlqueue.Late)
				q.between("the database's clock", time.Duration(a.Now-now)*time.Microsecond, -time.Second, 20*time.Second)
			}
			q.remove(q.p, "a", q.show() == "a!", "")
			q.has("")
		}
	}},
	{"handed over", false, false, func(q *queue) {
		for i, create := range []bool{true, false} {
			h, err := q.Store.Heartbeat(q.t.Context(), q.p, time.Hour, create)
			q.ok(err)
			q.is("the heartbeat", h.Number, 2+i)
		}
		a := q.take(q.other, "a", granted, "")
		q.is("a grant of the first", a.Token > 0, true)
		a = q.take(q.p, "b", waits, "")
		q.between("the queue is due", a.Due, 30*time.Minute, time.Hour)
		q.take(q.other, "c", waits, "", ttl(10*time.Hour))
		q.mine(q.p, true, "b")
		q.mine(q.p, false, "")
		queued := q.tickets()[1].Since
		time.Sleep(time.Millisecond)
		r, err := q.Store.Remove(q.t.Context(), q.p, q.hold("a"))
		q.ok(err)
		q.is("a was there", r.Found, true)
		q.is("it is shown since its grant", q.tickets()[0].Since.After(queued), true)
		q.is("grants", r.Grants, []sqlqueue.Grant{{ID: q.id("b"), Token: q.tokens["b"], Heartbeat: 3}})
		q.has("b! c")
		q.remove(q.p, "a", false, "")
		q.mine(q.p, false, "b!")
		h, err := q.Store.Heartbeat(q.t.Context(), q.p, time.Hour, false)
		q.ok(err)
		q.is("the heartbeat and its tickets", []any{h.Number, len(h.Tickets)}, []any{4, 1})
		q.mine(q.other, true, "c")
		q.remove(q.other, "b", true, "c")
		k := q.mine(q.other, false, "c!")[0]
		q.between("a provisional lease", k.Left, 30*time.Minute, time.Hour)
		q.renew(10*time.Hour, []int{0}, q.hold("c"))
		q.mine(q.other, true, "")
		q.between("the lease", q.left("c"), 9*time.Hour, 10*time.Hour)
		q.remove(q.p, "c", true, "")
		q.has("")
	}},
	{"readers", false, false, func(q *queue) {
		q.take(q.p, "a", granted, "")
		q.take(q.p, "r", waits, "")
		q.take(q.p, "s", waits, "", ttl(10*time.Hour))
		q.take(q.p, "b", waits, "")
		q.take(q.p, "t", waits, "")
		q.remove(q.p, "a", true, "r s")
		q.has("r! s! b t")
		q.mine(q.p, false, "r! s!")
		q.remove(q.p, "r", true, "")
		q.has("s! b t")
		q.remove(q.p, "s", true, "b")
		q.has("b! t")
		q.remove(q.p, "b", true, "t")
		q.has("t!")
	}},
	{"a writer leaves", false, false, func(q *queue) {
		q.take(q.p, "r", granted, "")
		q.take(q.p, "b", waits, "")
		q.take(q.p, "s", waits, "")
		q.take(q.p, "c", waits, "")
		q.remove(q.p, "b", true, "s")
		q.has("r! s! c")
		q.breaks(q.p, "c", true, "")
		q.has("r! s!")
	}},
	{"permits", false, false, func(q *queue) {
		q.take(q.p, "a", granted, "")
		for _, l := range []string{"r", "s", "t", "u"} {
			q.take(q.p, l, waits, "", limit(2))
		}
		q.remove(q.p, "a", true, "r s")
		q.remove(q.p, "r", true, "t")
		q.has("s! t! u")
		q.remove(q.p, "u", true, "")
		q.has("s! t!")
	}},
	{"permits of several limits", false, false, func(q *queue) {
		q.take(q.p, "r", granted, "", limit(1))
		q.take(q.p, "s", waits, "", limit(1))
		q.take(q.p, "t", granted, "", limit(3))
		q.take(q.p, "u", waits, "", limit(3))
		q.take(q.p, "v", granted, "")
		q.has("r! s t! u v!")
		q.remove(q.p, "t", true, "u")
		q.has("r! s u! v!")
		q.remove(q.p, "r", true, "s")
		q.has("s! u! v!")
	}},
	{"narrow limits ahead of a wide one", false, false, func(q *queue) {
		q.take(q.p, "a", granted, "")
		q.take(q.p, "r", waits, "", limit(1))
		q.take(q.p, "s", waits, "", limit(1))
		q.take(q.p, "t", waits, "", limit(3))
		q.take(q.p, "u", waits, "", limit(3))
		q.remove(q.p, "a", true, "r t")
		q.has("r! s t! u")
	}},
	{"a waiter leaves", false, false, func(q *queue) {
		q.take(q.p, "a", granted, "")
		q.take(q.p, "b", waits, "")
		q.take(q.other, "r", waits, "")
		q.take(q.p, "c", waits, "")
		q.remove(q.p, "r", true, "")
		q.remove(q.p, "b", true, "")
		q.remove(q.p, "b", false, "")
		q.has("a! c")
	}},
	{"a lease is over", false, false, func(q *queue) {
		q.take(q.other, "a", granted, "")
		q.take(q.p, "b", waits, "")
		q.take(q.other, "c", waits, "")
		q.end("a")
		q.is("those in the queue", q.letters(), "b c") // the first may be shown as held
		if in := q.due(q.p, true); in > 0 {
			q.t.Fatalf("a queue whose first lease is over is due in %v", in)
		}
		q.due(q.other, false)
		q.advance(q.p, "b")
		q.has("b! c")
		q.between("due", q.due(q.other, true), 30*time.Minute, time.Hour)
		q.remove(q.p, "a", false, "")
		q.has("b! c")
		q.remove(q.other, "c", true, "")
		q.end("b")
		q.renew(time.Hour, nil, q.hold("b"))
		q.has("")
	}},
	{"a lease that is over is not shortened", false, false, func(q *queue) {
		q.take(q.p, "a", granted, "")
		q.end("a")
		held, err := q.Store.Shorten(q.t.Context(), q.hold("a"), time.Hour)
		q.ok(err)
		q.is("shortened", held, false)
		q.has("")
	}},
	{"a lease is over when it is removed", false, false, func(q *queue) {
		for _, breaks := range []bool{false, true} {
			q.take(q.other, "a", granted, "")
			q.take(q.p, "b", waits, "")
			q.end("a")
			if breaks {
				q.breaks(q.p, "a", false, "b")
			} else {
				q.remove(q.p, "a", false, "b")
			}
			q.has("b!")
			q.remove(q.p, "b", true, "")
			q.take(q.other, "a", granted, "")
			q.end("a")
			q.remove(q.p, "a", false, "")
			q.take(q.p, "r", granted, "")
			q.take(q.p, "c", waits, "")
			q.end("r")
			q.remove(q.p, "r", false, "c")
			q.remove(q.p, "c", true, "")
		}
	}},
	{"a lease is over when others ask", false, false, func(q *queue) {
		q.take(q.other, "a", granted, "")
		q.end("a")
		q.take(q.p, "b", granted, "", try)
		q.take(q.p, "c", waits, "")
		q.end("b")
		q.take(q.p, "d", sqlqueue.Refused, "c", try)
		q.has("c!")
		q.take(q.p, "e", waits, "")
		q.remove(q.p, "c", true, "e")
		q.remove(q.p, "e", true, "")
		q.take(q.p, "f", granted, "")
		old := q.tokens["f"]
		q.end("f")
		q.take(q.p, "f", granted, "")
		q.is("a new token", q.tokens["f"] > old, true)
		q.has("f!")
		q.end("f")
		q.take(q.p, "g", granted, "") // it need not wait for anything
		q.has("g!")
	}},
	{"asked again when it is due", false, false, func(q *queue) {
		lives, gone := q.process(10*time.Minute), q.process(time.Hour)
		q.take(q.other, "a", granted, "")
		q.take(lives, "b", waits, "")
		q.take(gone, "c", waits, "")
		q.take(q.p, "d", waits, "")
		q.end("a")
		q.take(lives, "b", granted, "b") // by this very request
		q.between("the lease", q.left("b"), 30*time.Minute, time.Hour)
		q.has("b! c d")
		q.expire(gone)
		q.end("b")
		old := q.tokens["c"]
		q.take(q.p, "c", waits, "d")
		q.is("a new token", q.tokens["c"] > old, true)
		q.has("d! c")
	}},
	{"a reader's lease is over", false, false, func(q *queue) {
		q.take(q.p, "r", granted, "", ttl(10*time.Hour))
		q.take(q.p, "s", granted, "")
		q.take(q.p, "t", granted, "", ttl(10*time.Minute))
		q.take(q.p, "u", waits, "", limit(3))
		a := q.take(q.p, "b", waits, "")
		q.between("due", a.Due, 5*time.Minute, 10*time.Minute)
		q.end("s")
		q.has("r! t! u b")
		q.advance(q.p, "u")
		q.has("r! t! u! b")
		q.between("due", q.due(q.p, true), 5*time.Minute, 10*time.Minute)
	}},
	{"a process has expired", false, false, func(q *queue) {
		for _, how := range []string{"release", "break", "ask"} {
			gone := q.process(time.Hour)
			q.take(q.other, "a", granted, "")
			q.take(gone, "b", waits, "")
			q.take(gone, "c", waits, "")
			q.take(q.p, "d", waits, "")
			q.expire(gone)
			q.has("a! d")
			switch how {
			case "release":
				q.remove(q.p, "a", true, "d")
			case "break":
				q.breaks(q.p, "a", true, "d")
			case "ask":
				q.remove(q.other, "a", true, "")
				q.take(q.p, "d", granted, "")
			}
			q.has("d!")
			h, err := q.Store.Heartbeat(q.t.Context(), gone, time.Hour, false)
			q.ok(err)
			q.is("the heartbeat of a process whose tickets are gone", h.Number, 0)
			q.remove(q.p, "d", true, "")
		}
	}},
	{"granted for as long as its process lives", false, false, func(q *queue) {
		lives := q.process(10 * time.Minute)
		for _, how := range []string{"walk", "hand over"} {
			q.take(q.other, "a", granted, "")
			q.take(lives, "b", waits, "")
			q.take(q.p, "c", waits, "", ttl(10*time.Minute))
			if how == "walk" {
				q.end("a")
				q.advance(q.p, "")
			} else {
				q.remove(q.p, "a", true, "")
			}
			q.has("b! c")
			q.between("a provisional lease", q.mine(lives, false, "b!")[0].Left, 5*time.Minute, 10*time.Minute)
			if how == "walk" {
				q.end("b")
				q.advance(q.p, "c")
			} else {
				q.remove(q.p, "b", true, "c")
			}
			q.between("a provisional lease", q.mine(q.p, false, "c!")[0].Left, 5*time.Minute, 10*time.Minute)
			q.remove(q.p, "c", true, "")
		}
	}},
	{"renewed", false, false, func(q *queue) {
		q.take(q.p, "r", granted, "")
		q.take(q.p, "s", granted, "")
		q.take(q.p, "b", waits, "")
		missing := q.hold("z")
		q.renew(10*time.Hour, []int{2}, missing, q.hold("b"), q.hold("s"))
		q.between("the lease", q.left("s"), 9*time.Hour, 10*time.Hour)
		q.between("the lease of another", q.left("r"), 0, time.Hour)
		q.renew(time.Second, []int{0}, q.hold("s"))
		q.between("the lease", q.left("s"), 9*time.Hour, 10*time.Hour)
		held, err := q.Store.Shorten(q.t.Context(), q.hold("s"), 10*time.Minute)
		q.ok(err)
		q.is("shortened", held, true)
		q.between("the lease", q.left("s"), 5*time.Minute, 10*time.Minute)
		q.between("the lease of another", q.left("r"), 30*time.Minute, time.Hour)
		held, err = q.Store.Shorten(q.t.Context(), q.hold("s"), 10*time.Hour)
		q.ok(err)
		q.is("shortened", held, true)
		q.between("the lease", q.left("s"), 5*time.Minute, 10*time.Minute)
		for _, h := range []driver.Hold{missing, q.hold("b")} {
			held, err = q.Store.Shorten(q.t.Context(), h, 0)
			q.ok(err)
			q.is("shortened", held, false)
		}
		q.has("r! s! b")
	}},
	{"broken", false, false, func(q *queue) {
		q.take(q.other, "a", granted, "")
		q.take(q.p, "b", waits, "")
		q.take(q.p, "c", waits, "")
		q.tokens["z"] = q.tokens["c"] + 1000
		q.breaks(q.p, "z", false, "")
		q.breaks(q.p, "b", true, "")
		q.has("a! c")
		q.breaks(q.p, "a", true, "c")
		q.breaks(q.p, "a", false, "")
		q.has("c!")
	}},
	{"a process leaves", false, false, func(q *queue) {
		leaves := q.process(time.Hour)
		q.take(q.p, "a", granted, "")
		q.take(leaves, "b", waits, "")
		q.take(q.p, "c", waits, "")
		q.ok(q.Store.Leave(q.t.Context(), leaves))
		q.has("a! c")
		q.remove(q.p, "a", true, "c")
		q.has("c!")
	}},
	{"swept", false, false, func(q *queue) {
		time.Sleep(1100 * time.Millisecond)
		q.sweep() // what other cases have left
		before := q.rows()
		q.take(q.p, "a", granted, "")
		gone := q.process(time.Hour)
		q.take(gone, "b", waits, "")
		q.take(q.p, "c", waits, "")
		x := *q
		x.name, x.tokens = "v"+q.name, make(map[string]uint64)
		x.take(gone, "a", granted, "")
		x.take(x.p, "r", waits, "")
		x.end("a")
		alone := x
		alone.name = "u" + q.name
		alone.take(alone.p, "a", granted, "")
		alone.end("a")
		q.expire(gone)
		time.Sleep(1100 * time.Millisecond) // it leaves what has just expired
		q.sweep()
		q.is("the rows after a sweep", q.rows()-before, 3)
		q.has("a! c")
		x.has("r!")
		x.remove(x.p, "r", true, "")
		q.remove(q.p, "c", true, "")
		q.remove(q.p, "a", true, "")
	}},
	{"shown", false, false, func(q *queue) {
		q.take(q.p, "a", granted, "")
		q.end("a")
		all, err := q.Store.Names(q.t.Context())
		q.ok(err)
		q.is("a name is listed whose ticket has expired", slices.Contains(all, q.name), false)
		gone := q.process(time.Hour)
		q.ok(q.Store.Leave(q.t.Context(), gone))
		noted := func(r *driver.Request) { r.Owner, r.Note, r.Limit = "owner "+r.ID, "note\x00", 7 }
		q.take(gone, "r", granted, "", noted)
		q.take(q.p, "b", waits, "")
		q.take(q.p, "s", waits, "", noted)
		for _, t := range q.tickets() {
			q.between("the age of a ticket", time.Since(t.Since), -10*time.Second, 10*time.Second)
			if l := q.id("b"); t.ID == l {
				q.is("b", []any{t.Owner, t.Note, t.Shared, t.Limit, t.Held, t.Remaining}, []any{"", "", false, 0, false, time.Duration(0)})
				continue
			}
			q.is("a reader", []any{t.Owner, t.Note, t.Shared, t.Limit, t.Held}, []any{"owner " + t.ID, "note\x00", true, 7, t.ID == q.id("r")})
		}
		all, err = q.Store.Names(q.t.Context())
		q.ok(err)
		q.is("the name is listed once", len(slices.DeleteFunc(all, func(n string) bool { return n != q.name })), 1)
	}},
	{"a heartbeat that is being committed", false, true, func(q *queue) {
		lives := q.process(time.Hour)
		q.take(q.other, "a", granted, "")
		q.take(lives, "b", waits, "")
		q.take(q.p, "c", waits, "")
		q.expire(lives)
		commit, err := q.Renew(lives, "")
		q.ok(err)
		q.during(commit, func() error {
			_, err := q.Store.Remove(q.t.Context(), q.p, q.hold("a"))
			return err
		})
		q.advance(q.p, "")
		q.has("b! c")
	}},
	{"a renewal that is being committed", false, true, func(q *queue) {
		q.take(q.other, "a", granted, "")
		q.take(q.p, "b", waits, "")
		q.end("a")
		commit, err := q.Renew(0, q.name)
		q.ok(err)
		q.during(commit, func() error {
			_, err := q.Store.Advance(q.t.Context(), q.p, q.name)
			return err
		})
		q.has("a! b")
		q.advance(q.p, "")
		q.has("a! b")
	}},
	{"turns to sweep", false, true, func(q *queue) {
		turn := func(life time.Duration, done bool) time.Duration {
			left, err := q.Store.SweepTurn(q.t.Context(), life, done)
			q.ok(err)
			return left
		}
		q.is("the first turn", turn(20*time.Second, false), 0*time.Second)
		q.between("the time until the next", turn(20*time.Second, false), time.Nanosecond, 20*time.Second)
		turn(40*time.Second, true)
		q.between("the time until the next", turn(20*time.Second, false), 20*time.Second, 40*time.Second)
		turn(time.Microsecond, true)
		time.Sleep(time.Millisecond)
		q.is("the next turn", turn(20*time.Second, false), 0*time.Second)
		turn(time.Hour, true) // longer than any: the clock was set back since
		q.is("the next turn", turn(20*time.Second, false), 0*time.Second)
	}},
}
