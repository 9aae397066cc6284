// Package guardtest proves a guard: the same cases for every resource.
package guardtest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/fence"
)

// Resource is one number behind a guard.
type Resource interface {
	// Read and Write are guarded, each on its own.
	Read(ctx context.Context, lock fence.Lock) (int, error)
	Write(ctx context.Context, lock fence.Lock, value int) error
	// Update reads, modifies and writes in one call of the guard.
	Update(ctx context.Context, lock fence.Lock, modify func(value int) int) error
	// Peek reads without the guard.
	Peek(ctx context.Context) (int, error)
}

// Run proves a guard with locks of l. Every case gets a resource of its own
// from fresh, with no fence raised for the names that it uses.
func Run(t *testing.T, l *locker.Client, fresh func(t *testing.T) Resource) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(t *testing.T, b *bed)
	}{
		{"a late holder is refused, at the read and at the write", lateHolder},
		{"the read raises the fence: no update is lost", readRaises},
		{"comparing at the write alone loses an update", writeAlone},
		{"tokens are compared as numbers of 63 bits", bigTokens},
		{"names are bytes", names},
		{"several locks are fenced each by its own token", groups},
		{"several locks raise all fences or none", groupRefused},
		{"holders that lose their locks at any time", losses},
		{"bad input", badInput},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, &bed{Resource: fresh(t), t: t, l: l}) })
	}
}

type bed struct {
	Resource
	t *testing.T
	l *locker.Client
}

func (b *bed) acquire(name string) *locker.Lock {
	b.t.Helper()
	k, err := b.l.Acquire(b.t.Context(), name)
	b.ok(err)
	return k
}

// lose takes the lock away from its holder, as the end of its lease does, before
// the holder notices it.
func (b *bed) lose(k *locker.Lock) {
	b.t.Helper()
	b.ok(b.l.Break(b.t.Context(), k.Name(), k.Token()))
}

func (b *bed) ok(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) stale(err error, late fence.Lock, seen uint64) {
	b.t.Helper()
	var s *fence.StaleError
	if !errors.Is(err, fence.ErrStale) || !errors.As(err, &s) {
		b.t.Fatalf("the error is %v, want one that wraps ErrStale", err)
	}
	if want := (fence.StaleError{Name: late.Name(), Token: late.Token(), Seen: seen}); *s != want {
		b.t.Fatalf("the error is %+v, want %+v", *s, want)
	}
}

func (b *bed) value(want int) {
	b.t.Helper()
	got, err := b.Peek(b.t.Context())
	b.ok(err)
	if got != want {
		b.t.Fatalf("the value is %d, want %d", got, want)
	}
}

func unique() string { return fmt.Sprintf("guard-%016x", rand.Uint64()) }

func lateHolder(t *testing.T, b *bed) {
	name := unique()
	first := b.acquire(name)
	b.ok(b.Write(t.Context(), first, 1))
	b.ok(b.Write(t.Context(), first, 2)) // as often as it likes
	b.lose(first)
	b.ok(b.Write(t.Context(), first, 3)) // nobody came after it yet

	next := b.acquire(name)
	b.ok(b.Update(t.Context(), next, func(v int) int { return v + 10 }))
	b.stale(b.Write(t.Context(), first, 4), first, next.Token())
	b.stale(b.Update(t.Context(), first, func(int) int { t.Error("a late holder's function runs"); return 5 }), first, next.Token())
	_, err := b.Read(t.Context(), first)
	b.stale(err, first, next.Token())
	b.value(13)
	b.ok(b.Write(t.Context(), next, 14)) // the refusals changed nothing for the holder
	b.value(14)
	b.ok(next.Release(t.Context()))
}

func readRaises(t *testing.T, b *bed) {
	name := unique()
	a := b.acquire(name)
	b.ok(b.Write(t.Context(), a, 10))
	readA, err := b.Read(t.Context(), a)
	b.ok(err)
	b.lose(a) // a is paused
	next := b.acquire(name)
	readB, err := b.Read(t.Context(), next)
	b.ok(err)
	b.stale(b.Write(t.Context(), a, readA-1), a, next.Token())
	b.ok(b.Write(t.Context(), next, readB-1))
	b.value(9) // one was sold
	b.ok(next.Release(t.Context()))
}

// writeAlone is the wrong way that package fence warns of.
func writeAlone(t *testing.T, b *bed) {
	name := unique()
	a := b.acquire(name)
	b.ok(b.Write(t.Context(), a, 10))
	readA, err := b.Peek(t.Context())
	b.ok(err)
	b.lose(a) // a is paused
	next := b.acquire(name)
	readB, err := b.Peek(t.Context())
	b.ok(err)
	b.ok(b.Write(t.Context(), a, readA-1))
	b.ok(b.Write(t.Context(), next, readB-1))
	b.value(9) // two were sold
	b.ok(next.Release(t.Context()))
}

func bigTokens(t *testing.T, b *bed) {
	name := unique()
	for i, token := range []uint64{9, 10, 99, 100, 1<<53 - 1, 1 << 53, 1<<53 + 1, 1<<53 + 2, math.MaxInt64 - 1, math.MaxInt64} {
		b.ok(b.Write(t.Context(), fence.Token(name, token), i))
		late := fence.Token(name, token-1)
		b.stale(b.Write(t.Context(), late, -1), late, token)
		b.value(i)
	}
}

func names(t *testing.T, b *bed) {
	u := unique()
	all := []string{
		u, u + " ", u + "  ", u + "\x00", u + "\x00\x00", u + "\n", strings.ToUpper(u), "{" + u + "}", "}" + u, "%7D" + u, "%" + u, "%25" + u,
		"{}" + u, u + "}", u + "/a", u + "é", u + "e\u0301", u + "'", u + `"`, u + "`", u + `\`, u + "$1", u + "?", u + "😀",
		u + strings.Repeat("x", 512-len(u)), u + strings.Repeat("x", 511-len(u)), u + strings.Repeat("x", 510-len(u)) + " ",
	}
	for i, name := range all {
		b.ok(b.Write(t.Context(), fence.Token(name, uint64(1000-i)), i)) //nolint:gosec // small
	}
	for i, name := range all {
		late := fence.Token(name, uint64(999-i))                         //nolint:gosec // small
		b.stale(b.Write(t.Context(), late, -1), late, uint64(1000-i))    //nolint:gosec // small
		_, err := b.Read(t.Context(), fence.Token(name, uint64(1000-i))) //nolint:gosec // small
		b.ok(err)
	}
}

func groups(t *testing.T, b *bed) {
	from, to := unique()+"-a", unique()+"-b"
	group, err := locker.AcquireAll(t.Context(), b.l, []string{to, from})
	b.ok(err)
	b.ok(b.Write(t.Context(), group, 1))
	for _, k := range group.Locks() { // the token of the group is not that of both
		b.stale(b.Write(t.Context(), fence.Token(k.Name(), k.Token()-1), 2), fence.Token(k.Name(), k.Token()-1), k.Token())
		b.ok(b.Write(t.Context(), fence.Token(k.Name(), k.Token()), 3))
	}
	first := group.Locks()[0]
	b.lose(first)
	next := b.acquire(first.Name())
	b.ok(b.Write(t.Context(), next, 4))
	b.stale(b.Write(t.Context(), group, 5), first, next.Token())
	b.value(4)
	b.ok(next.Release(t.Context()))
	_ = group.Release(t.Context()) // one of it is lost
}

// groupRefused: if one member is stale, the fences of the others stay as they were.
func groupRefused(t *testing.T, b *bed) {
	group, err := locker.AcquireAll(t.Context(), b.l, []string{unique() + "-a", unique() + "-b", unique() + "-c"})
	b.ok(err)
	late := group.Locks()[1]
	b.ok(b.Write(t.Context(), fence.Token(late.Name(), late.Token()+1), 1))
	b.stale(b.Write(t.Context(), group, 2), late, late.Token()+1)
	b.ok(b.Write(t.Context(), fence.Token(group.Locks()[0].Name(), 1), 3))
	b.ok(b.Write(t.Context(), fence.Token(group.Locks()[2].Name(), 1), 4))
	b.ok(group.Release(t.Context()))
}

// losses sells from several goroutines that lose their locks all the time. The value
// changes by the number of successful sales.
func losses(t *testing.T, b *bed) {
	name, workers, times := unique(), 6, 12
	if testing.Short() {
		times = 4
	}
	var sold, refused atomic.Int64
	b.ok(b.Write(t.Context(), fence.Token(name, 1), 0))
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1)) //nolint:gosec // no secret
			for i := range times {
				k, err := b.l.Acquire(t.Context(), name)
				if err != nil {
					t.Error(err)
					return
				}
				if r.IntN(2) == 0 {
					_ = b.l.Break(t.Context(), name, k.Token()) // the next one is granted now
				}
				switch err := b.sell(t.Context(), k, i%2 == 0); {
				case err == nil:
					sold.Add(1)
				case errors.Is(err, fence.ErrStale):
					refused.Add(1)
				default:
					t.Error(err)
				}
				_ = k.Release(t.Context())
			}
		})
	}
	group.Wait()
	t.Logf("sold %d, refused %d", sold.Load(), refused.Load())
	b.value(int(sold.Load()))
	if got := int(sold.Load() + refused.Load()); got != workers*times && !t.Failed() {
		t.Errorf("%d of %d were sold or refused", got, workers*times)
	}
}

// sell sells one, by one call of the guard or by two.
func (b *bed) sell(ctx context.Context, k fence.Lock, once bool) error {
	if once {
		return b.Update(ctx, k, func(v int) int { return v + 1 })
	}
	v, err := b.Read(ctx, k)
	if err != nil {
		return err
	}
	time.Sleep(time.Duration(rand.IntN(3)) * time.Millisecond) //nolint:gosec // the work takes its time
	return b.Write(ctx, k, v+1)
}

func badInput(t *testing.T, b *bed) {
	name := unique()
	b.ok(b.Write(t.Context(), fence.Token(name, 1), 7))
	for what, c := range map[string]struct {
		lock fence.Lock
		want error
	}{
		"no lock":           {nil, locker.ErrInvalidOption},
		"a nil lock":        {(*locker.Lock)(nil), locker.ErrInvalidOption},
		"no token":          {fence.Token(name, 0), locker.ErrInvalidOption},
		"too great a token": {fence.Token(name, 1<<63), locker.ErrInvalidOption},
		"no name":           {fence.Token("", 5), locker.ErrInvalidName},
		"a long name":       {fence.Token(strings.Repeat("x", 513), 5), locker.ErrInvalidName},
		"no UTF-8":          {fence.Token("\xff", 5), locker.ErrInvalidName},
	} {
		if err := b.Write(t.Context(), c.lock, 8); !errors.Is(err, c.want) {
			t.Errorf("%s: the error is %v, want %v", what, err, c.want)
		}
		if _, err := b.Read(t.Context(), c.lock); !errors.Is(err, c.want) {
			t.Errorf("%s: the error of the read is %v, want %v", what, err, c.want)
		}
	}
	b.value(7)
	b.ok(b.Write(t.Context(), fence.Token(name, 1), 9)) // the fence was not raised
}
