package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lockerproject/locker"
)

var names = topic("names",
	// All these names are held at the same time: a store that confuses two refuses the second.
	newCase("distinct", "D2 C9",
		"different names are different locks: case, blanks, slashes, braces, NUL, prefixes, inner keys", func(e *env) {
			ns := awkward(e.unique())
			cs := e.clients(2)
			locks := make([]*locker.Lock, len(ns))
			for i, n := range ns {
				k, err := cs[i%2].TryAcquire(e.within(patience), n, locker.WithOwner(fmt.Sprint("owner of ", i)))
				if errors.Is(err, locker.ErrNotAcquired) {
					e.failf("name %q is refused while only other names are held: %w", n, err)
				}
				e.ok(err, "try to acquire %q", n)
				locks[i] = k
			}
			for i, n := range ns {
				e.refused(cs[1-i%2], n)
				queue := e.queueOf(n)
				if len(queue) != 1 || queue[0].Owner != fmt.Sprint("owner of ", i) || queue[0].Token != locks[i].Token() {
					e.failf("the queue of %q is %s, want ticket %d of owner of %d", n, show(queue), locks[i].Token(), i)
				}
			}
			if listed, err := e.control().List(e.within(patience)); !errors.Is(err, locker.ErrUnsupported) {
				e.ok(err, "list")
				for _, n := range ns {
					if !slices.Contains(listed, n) {
						e.failf("name %q is held and not listed", n)
					}
				}
			}
			for i, k := range locks {
				if i%2 == 0 {
					e.release(k)
				}
			}
			for i, k := range locks {
				if i%2 == 1 {
					e.holds(k, "after others with like names were released")
					e.release(k)
				}
			}
		}),
	newCase("any-string", "D2 C9",
		"every kind of name can be acquired, waited for, renewed and inspected, and the queues of names that look alike do not affect each other", func(e *env) {
			ns := awkward(e.unique())
			cs := e.clients(2)
			held, waiting := make([]*locker.Lock, len(ns)), make([]*pending, len(ns))
			const workers = 4
			e.each(workers, func(w int) {
				for i := w; i < len(ns); i += workers {
					held[i] = e.takeNow(cs[0], ns[i], locker.Shared())
					e.ok(held[i].Extend(e.within(patience), locker.DefaultTTL), "renew %q", ns[i])
					waiting[i] = e.queue(cs[1], ns[i], 2)
				}
			})
			for i := range ns {
				e.release(held[i])
				k := waiting[i].granted(patient, "the holder released")
				for _, later := range waiting[i+1:] {
					later.waits("only other names were released")
				}
				e.release(k)
			}
			e.endsEmpty(ns...)
		}),
	newCase("invalid", "D2 C9",
		"an invalid name is ErrInvalidName, and no request is sent", func(e *env) {
			c, w := e.wired()
			for _, n := range []string{"", strings.Repeat("x", 513), "a\xff", "\xc0\x80", strings.Repeat("é", 257)} {
				e.is(errOf(c.Acquire(e.ctx, n)), locker.ErrInvalidName, "acquire %q", n)
				e.is(errOf(c.TryAcquire(e.ctx, n)), locker.ErrInvalidName, "try to acquire %q", n)
				e.is(errOf(c.Inspect(e.ctx, n)), locker.ErrInvalidName, "inspect %q", n)
				_, err := locker.AcquireAll(e.ctx, c, []string{"valid", n})
				e.is(err, locker.ErrInvalidName, "acquire all of valid and %q", n)
				if !utf8.ValidString(err.Error()) {
					e.failf("the error for %q is not valid UTF-8", n)
				}
			}
			if n := w.count(); n != 0 {
				e.failf("%d requests were sent for invalid names", n)
			}
			longest := fill(e.unique(), "é", 512)
			e.release(e.takeNow(c, longest))
			e.endsEmpty(longest)
		}),
)

// awkward returns names that a store might confuse with each other. They contain u,
// which no other run uses.
func awkward(u string) []string {
	ns := []string{
		u, strings.ToUpper(u + "a"), u + "A", u + "a", u + " ", u + "  ", " " + u, u + "\t", u + "\n", u + "\r\n",
		u + "/", u + "//", "/" + u, u + "/1", u + "/lock", u + "/../" + u, u + "/.", "./" + u, u + "\\", u + ".",
		u + ":", u + ":q", u + ":1", u + ":line", u + ":queue", u + ":fence", u + ":token", u + ":h", u + ":w", u + ":f",
		u + "-", u + "-0000000001", u + "/0000000001", u + "1", u + "10", u + "\x00", "\x00" + u, u + "\x00q", u + "\x01",
		"{" + u, "{" + u + "}", u + "{}", u + "{a}", "{}" + u, "}" + u + "{", "{{" + u + "}}", u + "{" + u + "}",
		"locker:" + u, "locker/" + u, "locker:{" + u + "}", "{locker}:" + u, "locker", "locker:" + u + ":q", "/locker/" + u,
		u + "%", u + "%20", u + "%2F", u + "%00", u + "_", u + "*", u + "?", u + "[a]", u + "'", u + "\"", u + "`", u + ";--",
		u + "$1", u + "@", u + "#", u + "|", u + "é", u + "e\u0301", u + "É", u + "ß", u + "ss", u + "ẞ", u + "ı", u + "i", u + "I",
		u + "🔒", u + "\u200d", u + "\ufeff", "\ufeff" + u, u + "\u00a0", u + "\uffff", u + "日本", u + "\u202e",
	}
	for _, long := range []string{"x", "X", "y", "🔒"} { // 512 bytes that differ at the end only
		ns = append(ns, fill(u, "x", 512-len(long))+long)
	}
	ns = append(ns, fill(u, "x", 511), fill(u, "é", 512), fill(u, "/", 512))
	for i, n := range ns {
		if n == "locker" { // other runs use it too
			ns[i] = "locker" + u
		}
	}
	return ns
}

// fill makes s n bytes long.
func fill(s, with string, n int) string {
	for len(s)+len(with) <= n {
		s += with
	}
	return s + strings.Repeat("z", n-len(s))
}
