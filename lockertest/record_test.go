package lockertest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/lockertest"
)

func TestGrants(t *testing.T) {
	bubble(t, func(t *testing.T, l *lockertest.Locker) {
		begun := time.Now()
		a := acquire(t, l, "n", locker.WithOwner("a"))
		time.AfterFunc(2*time.Second, func() { want(t, a.Release(context.Background())) })
		b := acquire(t, l, "n", locker.WithOwner("b"))
		time.Sleep(3 * time.Second)
		l.Lose("n")
		c := acquire(t, l, "n", locker.WithOwner("c"), locker.Shared())
		acquire(t, l, "other")
		at := func(s int) time.Time { return begun.Add(time.Duration(s) * time.Second) }
		expected := []lockertest.Grant{
			{Name: "n", Owner: "a", Token: a.Token(), From: at(0), To: at(2)},
			{Name: "n", Owner: "b", Token: b.Token(), From: at(2), To: at(5), Lost: true},
			{Name: "n", Owner: "c", Token: c.Token(), From: at(5), Shared: true},
		}
		if got := l.Grants("n"); fmt.Sprint(got) != fmt.Sprint(expected) {
			t.Errorf("got  %v\nwant %v", got, expected)
		}
	})
}

// failures is a test that keeps its errors.
type failures struct {
	testing.TB
	all []string
}

func (f *failures) Helper() {}
func (f *failures) Errorf(format string, args ...any) {
	f.all = append(f.all, fmt.Sprintf(format, args...))
}

func TestAssertions(t *testing.T) {
	bubble(t, func(t *testing.T, l *lockertest.Locker) {
		other := l.Join()
		acquire(t, l, "a", locker.WithOwner("me"))
		acquire(t, other, "b", locker.WithOwner("you"))
		l.Down()
		expect := func(f func(tb testing.TB), texts ...string) {
			t.Helper()
			tb := &failures{}
			f(tb)
			if len(tb.all) != len(texts) {
				t.Fatalf("got %q, want %d errors", tb.all, len(texts))
			}
			for i, text := range texts {
				if !strings.Contains(tb.all[i], text) {
					t.Errorf("got %q, want %q in it", tb.all[i], text)
				}
			}
		}
		expect(func(tb testing.TB) { l.AssertHeld(tb, "a") })
		expect(func(tb testing.TB) { l.AssertHeld(tb, "b") }, `"b" is not held by this Locker: you holds it`)
		expect(func(tb testing.TB) { l.AssertHeld(tb, "c") }, "nobody has it")
		expect(func(tb testing.TB) { l.AssertFree(tb, "c") })
		expect(func(tb testing.TB) { l.AssertFree(tb, "c", "a") }, `"a" is not free: me holds it`)
		expect(func(tb testing.TB) { l.AssertFree(tb) }, "is not free", "is not free")
		closeLocker(t, other)
		expect(func(tb testing.TB) { other.AssertFree(tb, "b") })
		time.Sleep(time.Minute) // the lease ends
		expect(func(tb testing.TB) { l.AssertHeld(tb, "a") }, "nobody has it")
	})
}
