package conformance

import (
	"errors"
	"math"
	"strings"
	"time"

	"github.com/lockerproject/locker"
)

var options = topic("options",
	newCase("lease-lengths", "D10 C9",
		"leases of milliseconds and of days are given, or refused with an error, never shortened silently", func(e *env) {
			c, name := e.client(), e.name("lengths")
			k := e.take(c, name, locker.WithTTL(20*time.Millisecond), locker.WithoutRenewal())
			e.awaitQueueWithin(e.leaseEnd(20*time.Millisecond), name, 0)
			e.is(k.Err(), locker.ErrLost, "a lease of 20 ms that is over")
			for _, ttl := range []time.Duration{3500 * time.Millisecond, 25 * time.Hour, 60 * 24 * time.Hour} {
				k, err := c.Acquire(e.within(patience), name, locker.WithTTL(ttl), locker.WithoutRenewal())
				if errors.Is(err, locker.ErrUnsupported) || errors.Is(err, locker.ErrInvalidOption) {
					continue
				}
				e.ok(err, "acquire with a lease of %v", ttl)
				e.wholeLease(k, ttl, ttl)
				e.ok(k.Extend(e.within(patience), 2*ttl), "extend to %v", 2*ttl)
				e.wholeLease(k, 2*ttl, time.Until(k.Deadline())+slack) // a session's time, if the store has sessions
				e.release(k)
			}
		}),
	newCase("awkward-texts", "D15 C9",
		"Inspect returns owners and notes unchanged, for any UTF-8 of up to 512 bytes", func(e *env) {
			c, name := e.client(), e.name("texts")
			for _, text := range []string{
				"plain", " blanks ", "slash/colon:comma,pipe|semi;", "{\"json\":\"1\"}", "'quoted'\"", "back\\slash", "line\nbreak\r\n",
				"nul\x00inside", "\x00", "\x01\x1f\x7f", "日本語", "🔒🔑", "e\u0301", "100%s%d", "$1 ? :name", strings.Repeat("x", 512), fill("", "🔒", 512),
			} {
				k := e.take(c, name, locker.WithOwner(text), locker.WithNote(text))
				queue := e.queueOf(name)
				e.release(k)
				k = e.take(c, name, locker.WithOwner(text), locker.WithNote(text), locker.Shared())
				queue = append(queue, e.queueOf(name)...)
				e.release(k)
				if len(queue) != 2 || queue[0].Owner != text || queue[0].Note != text || queue[1].Owner != text || queue[1].Note != text {
					e.failf("owner and note %q of a writer and a reader came out as %+v", text, queue)
				}
			}
			k := e.take(c, name, locker.WithNote(""))
			if queue := e.queueOf(name); len(queue) != 1 || queue[0].Note != "" || queue[0].Owner != k.Owner() {
				e.failf("no note, and owner %q, came out as %+v", k.Owner(), queue)
			}
			e.release(k)
		}),
	newCase("limits", "D4 D15 C9",
		"limits of one and of very many work, and are shown", func(e *env) {
			obeys(shared(1), shared(1))(e)
			obeys(shared(1_000_000), shared(math.MaxInt/2), shared(1_000_000))(e)
		}),
	newCase("group", "C9",
		"AcquireAll takes all names or none, in whatever order callers name them", func(e *env) {
			u := e.unique()
			a, b, c := u+"-a", u+"-b", u+"-c"
			cs := e.clients(2)
			orders := [][]string{{a, b, c}, {c, b, a}, {b, a}, {c, a, c}}
			var l ledger
			e.each(len(orders), func(i int) {
				for range rounds(8) {
					k, err := locker.AcquireAll(e.within(patience), cs[i%2], orders[i])
					e.ok(err, "acquire all of %q", orders[i])
					en := l.granted(k.Locks()[0], exclusively) // all of them want a
					l.ends(en)
					e.release(k)
				}
			})
			e.ok(l.check(), "the history of groups that share a name")

			k := e.take(cs[0], b)
			wait := locker.WithWait(2 * slack) // a busy store may need a part of it
			e.is(errOf(locker.AcquireAll(e.within(patience), cs[1], []string{c, b, a}, wait)), locker.ErrNotAcquired, "acquire all, with one held by somebody else")
			e.release(k)
			e.endsEmpty(a, b, c)
		}),
)

// wholeLease fails if the store shows less of a lease than was asked for and, if a session gives the lease, than that has left.
func (e *env) wholeLease(k *locker.Lock, ttl, session time.Duration) {
	e.sleep(50 * time.Millisecond)
	e.oneTicket(k)
	most := e.bounds(ttl).MaxTTL
	if left := e.queueOf(k.Name())[0].Remaining; left < min(ttl, session)-2*slack && (most == 0 || most >= ttl) {
		e.failf("%v remain of a lease of %v, which was not refused, its holder relies on it until %v, and Bounds.MaxTTL is %v", left, ttl, k.Deadline(), most)
	}
}
