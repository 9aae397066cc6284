package conformance

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

var inspection = topic("inspect",
	newCase("queue", "D15 C9",
		"Inspect shows who holds and who waits, in order, with owner, note, kind and token, and, where the store knows it, since when", func(e *env) {
			const clocks = 5 * time.Second // how far the store's clock may be off
			begun := time.Now()
			name, cs := e.uncheckedName("queue"), e.clients(3)
			held := []kind{shared(0), shared(7), shared(0)}
			kinds := append(held, exclusively, shared(0), shared(7), exclusively)
			var locks []*locker.Lock
			for i, kd := range kinds {
				opts := kd.options(locker.WithOwner(fmt.Sprint("owner ", i)), locker.WithNote(fmt.Sprint("note ", i)))
				if i < len(held) {
					locks = append(locks, e.take(cs[i%3], name, opts...))
				} else {
					e.queue(cs[i%3], name, i+1, opts...)
				}
			}
			for _, c := range cs { // all processes see the same
				queue, err := c.Inspect(e.within(patience), name)
				e.ok(err, "inspect")
				if queue.Name != name || len(queue.Tickets) != len(kinds) {
					e.failf("the queue is of %q, with %s; want %d tickets of %q", queue.Name, show(queue.Tickets), len(kinds), name)
				}
				var token uint64
				for i, t := range queue.Tickets {
					if !t.Since.IsZero() && (t.Since.Before(begun.Add(-clocks)) || t.Since.After(time.Now().Add(clocks))) {
						e.failf("ticket %d of the queue is since %v, and was asked for after %v", i, t.Since, begun)
					}
					wrong := t.Owner != fmt.Sprint("owner ", i) || t.Note != fmt.Sprint("note ", i) || t.Held != (i < len(held)) ||
						t.Shared != kinds[i].shared || t.Limit != kinds[i].limit || t.Token <= token || t.Held && t.Token != locks[i].Token()
					if wrong {
						e.failf("ticket %d of the queue is %+v, want owner %d with note %d, %s, held: %v, and a token greater than %d; the tokens of the holders are %d, %d, %d",
							i, t, i, i, kinds[i], i < len(held), token, locks[0].Token(), locks[1].Token(), locks[2].Token())
					}
					token = t.Token
				}
			}
			e.release(locks...)
			next, note := len(held), fmt.Sprint("note ", len(held))
			e.eventually(patient, "waiting for the grant of the first waiter", func() error {
				if queue := e.queueOf(name); len(queue) == 0 || !queue[0].Held || queue[0].Owner != fmt.Sprint("owner ", next) || queue[0].Note != note {
					return fmt.Errorf("the queue is %+v, want owner %d with note %d first, and holding", queue, next, next)
				}
				return nil
			})
		}),
	newCase("remaining", "D15 D12 C9",
		"Remaining is what is left of the holder's lease: it shrinks, grows with a renewal, which changes nothing else, and is zero for waiters", func(e *env) {
			cs := e.clients(2)
			e.together(func() { remaining(e, cs, exclusively) }, func() { remaining(e, cs, shared(0)) })
		}),
	newCase("empty", "D15 D18 C9",
		"a name that nobody uses has an empty queue, before and after it was used", func(e *env) {
			name := e.name("empty")
			for range 2 {
				if queue := e.queueOf(name); len(queue) != 0 {
					e.failf("the queue of a name nobody uses is %s", show(queue))
				}
				e.empty(name)
			}
			if _, err := e.control().Inspect(e.ctx, ""); !errors.Is(err, locker.ErrInvalidName) {
				e.failf("inspecting no name: got error %v, want ErrInvalidName", err)
			}
		}),
	newCase("list", "D2 D18 C9",
		"the names that are held or waited for are listed once each, and no others", func(e *env) {
			u := e.unique()
			held, waited, read, idle := u+" held", u+"/waited", u+"read", u+":idle"
			cs := e.clients(2)
			k := e.take(cs[0], held)
			e.take(cs[0], read, locker.Shared())
			e.take(cs[0], waited)
			e.queue(cs[1], waited, 2)
			e.release(e.take(cs[0], idle))
			if _, err := cs[1].List(e.within(patience)); errors.Is(err, locker.ErrUnsupported) {
				e.oneTicket(k)
				return
			}
			_, d := e.controlled()
			listed, err := d.(driver.Lister).List(e.within(patience)) // a Client would list a name once in any case
			e.ok(err, "list at the driver interface")
			times := make(map[string]int)
			for _, name := range listed {
				times[name]++
			}
			for name, want := range map[string]int{held: 1, waited: 1, read: 1, idle: 0} {
				if times[name] != want {
					e.failf("%q is listed %d times, want %d (among %d names)", name, times[name], want, len(listed))
				}
			}
			e.release(k)
			listed, err = cs[1].List(e.within(patience))
			e.ok(err, "list")
			if slices.Contains(listed, held) {
				e.failf("%q is listed after its release", held)
			}
		}),
	newCase("list-many", "D18 C9",
		"a list of many names is complete", func(e *env) {
			const n = 150
			u, c := e.unique(), e.client()
			locks := make([]*locker.Lock, n)
			e.each(n, func(i int) { locks[i] = e.take(c, fmt.Sprintf("%s/%d", u, i)) })
			names, err := c.List(e.within(patience))
			if errors.Is(err, locker.ErrUnsupported) {
				e.release(locks...)
				return
			}
			e.ok(err, "list")
			for _, k := range locks {
				if !slices.Contains(names, k.Name()) {
					e.failf("%q is held, and not among the %d names that are listed", k.Name(), len(names))
				}
			}
			e.each(n, func(i int) { e.release(locks[i]) })
		}),
	newCase("long-queue", "D5 D13 D15 D16 C9",
		"a queue of 110 waiters of one process is shown completely and in order, and the last of them can be broken", func(e *env) {
			const n = 110
			writers := rounds(40) // the rest are readers, most of whom are granted together
			name, cs := e.name("long"), e.clients(2)
			k := e.take(cs[0], name)
			ps := make([]*pending, n)
			for i := range ps {
				ps[i] = e.acquire(cs[i%2], name, kind{shared: i >= writers}.options(locker.WithOwner(fmt.Sprint(i)))...)
			}
			for _, p := range ps {
				p.awaitJoined(patient.plus(n*slack/2, "110 tickets"))
			}
			queue := e.leaves(name, n+1)
			order := make([]*pending, 0, n)
			for i, t := range queue {
				if i == 0 {
					continue
				}
				if t.Held || t.Token <= queue[i-1].Token {
					e.failf("position %d of the queue is %+v, behind token %d", i, t, queue[i-1].Token)
				}
				var who int
				if _, err := fmt.Sscan(t.Owner, &who); err != nil {
					e.failf("owner %q: %w", t.Owner, err)
				}
				order = append(order, ps[who])
			}
			if err := cs[0].Break(e.within(patience), name, queue[n].Token); !errors.Is(err, locker.ErrUnsupported) {
				e.ok(err, "break of the last of %d waiters", n)
				order[n-1].moves = true
			}
			e.release(k)
			for i, p := range order {
				k := p.granted(patient, fmt.Sprintf("it was position %d of %d", i+1, n))
				if want := queue[i+1].Token; k.Token() != want && !p.moves {
					e.failf("position %d was shown as ticket %d and granted as %d", i+1, want, k.Token())
				}
				e.release(k)
			}
		}).keepsBusy(),
)

// remaining looks at what is left of a lease before and after it is extended, with a waiter queued.
func remaining(e *env, cs []*locker.Client, kd kind) {
	const ttl = 40 * time.Second
	name := e.uncheckedName("remaining")
	k := e.take(cs[0], name, kd.options(locker.WithTTL(ttl), locker.WithoutRenewal(), locker.WithNote("a note"))...)
	e.queue(cs[1], name, 2)
	e.sleep(slack / 20)
	// A store may have longer leases than asked, and round to seconds.
	most := max(ttl, e.bounds(ttl).Crash) + slack
	queue := e.queueOf(name)
	first := queue[0]
	if first.Remaining <= 0 || first.Remaining > most {
		e.failf("the remaining time of a lease of %v is %v", ttl, first.Remaining)
	}
	if queue[1].Remaining != 0 {
		e.failf("the remaining time of a waiter is %v", queue[1].Remaining)
	}
	e.ok(k.Extend(e.within(patience), 2*ttl), "extend")
	least := min(2*ttl, time.Until(k.Deadline())+slack) // a session's time, if the store has sessions
	longer := e.queueOf(name)[0]
	exact := first.Remaining < ttl && first.Remaining > ttl-2*slack // else it is a session's time, or the whole TTL
	if longer.Remaining < first.Remaining-slack || longer.Remaining > e.leaseEnd(2*ttl).d || exact && longer.Remaining < least-2*slack {
		e.failf("the remaining time of a lease extended to %v is %v, want %v at least, and was %v before", 2*ttl, longer.Remaining, least, first.Remaining)
	}
	longer.Remaining, longer.Since = first.Remaining, first.Since // expiry/renewed-lease looks at Since
	if longer != first {
		e.failf("the ticket is %+v after its lease was extended, and was %+v", longer, first)
	}
}
