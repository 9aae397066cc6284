package casqueue

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Tokens grow even if the store loses everything, whatever was queued.
func TestTokensGrow(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		other, _ := b.open()
		last := uint64(0)
		for i := range 20 {
			id := fmt.Sprint(i)
			g := b.take([]*Engine{e, other}[i%2], request("a", id))
			if g.Token <= last {
				b.Fatalf("token %d after %d", g.Token, last)
			}
			last = g.Token
			switch i % 4 {
			case 0:
				time.Sleep(2 * keepEmpty)
				fallthrough
			case 1:
				b.lose("")
			default:
				_ = e.Release(b.Context(), driver.Hold{Name: "a", ID: id})
			}
		}
	})
}

// Names whose hashes are equal are different locks.
func TestCollisions(t *testing.T) {
	bubble(t, func(b *bed) {
		same := func(o *Options) { o.Hash = func(string) string { return "same" } }
		e, _ := b.open(same)
		other, _ := b.open(same)
		tokens := make(map[string]uint64)
		for i := range 10 {
			name := strings.Repeat("x", i+1)
			tokens[name] = b.take(e, request(name, fmt.Sprint(i))).Token
		}
		for i := range 10 {
			name := strings.Repeat("x", i+1)
			if err := other.Break(b.Context(), name, tokens[name]); err != nil {
				b.Error(err)
			}
			for j := range 10 {
				if n := len(b.queue(other, strings.Repeat("x", j+1))); (n == 1) != (j > i) {
					b.Errorf("%d tickets of name %d when %d was broken", n, j, i)
				}
			}
		}
	})
}

// Waiters of one process share a writer.
func TestSharedWriter(t *testing.T) {
	bubble(t, func(b *bed) {
		b.most = 20_000 // for all of them
		e, _ := b.open()
		b.take(e, request("a", "holder"))
		puts := b.count("put")
		var group sync.WaitGroup
		for i := range 100 {
			group.Go(func() { b.waits(e, request("a", fmt.Sprint(i))) })
		}
		group.Wait()
		if n := b.count("put") - puts; n > 5 {
			b.Errorf("%d writes for 100 waiters that came at once", n)
		}
		if n := len(b.queue(e, "a")); n != 101 {
			b.Errorf("%d tickets", n)
		}
	})
}

// A ticket for which a queue has no space is refused, and no other.
func TestTooLarge(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		b.take(e, request("a", "0"))
		queued, refused := 0, 0
		for i := range 100 {
			r := request("a", fmt.Sprint("w", i))
			r.Wait, r.Note = true, strings.Repeat("n", 500)
			joined := make(chan struct{})
			r.Joined = func() { close(joined) }
			got := make(chan error, 1)
			go func() { _, err := e.Acquire(b.Context(), r); got <- err }()
			select {
			case <-joined:
				queued++
			case err := <-got:
				if !errors.Is(err, ErrTooLarge) || !errors.Is(err, driver.ErrNoTicket) || driver.IsUnavailable(err) {
					b.Fatalf("a ticket too many: %v", err)
				}
				refused++
			}
		}
		if queued == 0 || refused == 0 || len(b.queue(e, "a")) != queued+1 {
			b.Errorf("%d queued, %d refused, %d shown", queued, refused, len(b.queue(e, "a")))
		}
		if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "0"}); err != nil {
			b.Error(err)
		}
	})
}

// A document of another program is refused, and left as it is.
func TestForeignDocument(t *testing.T) {
	for _, content := range []string{"not ours", `{"v":2}`, `{"v":1,"q":[null]}`} {
		bubble(t, func(b *bed) {
			e, p := b.open()
			held := request("held", "1")
			g := b.take(e, held)
			if err := p.Set(b.Context(), e.key("a"), []byte(content), time.Hour); err != nil {
				b.Fatal(err)
			}
			_, err := e.Acquire(b.Context(), request("a", "2"))
			if err == nil || driver.IsUnavailable(err) || !errors.Is(err, driver.ErrNoTicket) {
				b.Errorf("acquire: %v", err)
			}
			if _, err := e.Inspect(b.Context(), "a"); err == nil {
				b.Error("inspect: no error")
			}
			errs := e.RenewAll(b.Context(), []driver.Renewal{
				{Hold: driver.Hold{Name: "a", ID: "3"}, TTL: time.Second}, {Hold: held.Hold(g.Token), TTL: 10 * time.Second},
			})
			if errs[0] == nil || errs[1] != nil {
				b.Errorf("renewals beside it: %v", errs)
			}
			if docs, _ := p.Get(b.Context(), e.key("a")); string(docs[0].Value) != content {
				b.Errorf("it is now %q", docs[0].Value)
			}
			b.lose("")
			b.take(e, request("a", "4")) // it is gone
		})
	}
}

// A try is refused only after a new reading of the queue: an earlier one may be old.
func TestTryReads(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		other, _ := b.open()
		g := b.take(other, request("a", "1"))
		if _, err := e.Acquire(b.Context(), request("a", "2")); err != driver.ErrNotAcquired { //nolint:errorlint // the sentinel itself
			b.Fatalf("beside a holder: %v", err)
		}
		puts := b.count("put")
		if _, err := e.Acquire(b.Context(), request("a", "2")); err != driver.ErrNotAcquired || b.count("put") != puts { //nolint:errorlint // the sentinel itself
			b.Errorf("a refused try: %v, and %d writes", err, b.count("put")-puts)
		}
		if err := other.Release(b.Context(), driver.Hold{Name: "a", ID: "1", Token: g.Token}); err != nil {
			b.Fatal(err)
		}
		b.take(e, request("a", "3"))
	})
}

// The tokens of a process are greater than those that it has seen, even if its clock is behind that of the process that
// made them, and the store has lost everything.
func TestTokensOfFastClock(t *testing.T) {
	bubble(t, func(b *bed) {
		e, p := b.open()
		ahead := uint64(time.Now().Add(time.Hour).UnixMicro())
		if err := p.Set(b.Context(), e.key("a"), fmt.Appendf(nil, `{"v":1,"q":[{"n":"a","l":%d}]}`, ahead), time.Hour); err != nil {
			b.Fatal(err)
		}
		g := b.take(e, request("a", "1"))
		b.lose("")
		if next := b.take(e, request("a", "2")); g.Token <= ahead || next.Token <= g.Token {
			b.Errorf("tokens %d and, after a loss, %d, want more than %d", g.Token, next.Token, ahead)
		}
	})
}

// Of tickets that are queued together, only those for which there is no space are refused.
func TestTooLargeTogether(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		b.take(e, request("a", "0"))
		var queued, refused atomic.Int64
		for i := range 100 {
			r := request("a", fmt.Sprint("w", i))
			r.Wait, r.Note, r.Joined = true, strings.Repeat("n", 500), func() { queued.Add(1) }
			go func() {
				if _, err := e.Acquire(b.Context(), r); errors.Is(err, ErrTooLarge) {
					refused.Add(1)
				}
			}()
		}
		time.Sleep(time.Second)
		if q, r := queued.Load(), refused.Load(); q < 10 || q+r != 100 {
			b.Errorf("%d queued, %d refused of 100", q, r)
		}
	})
}
