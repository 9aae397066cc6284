package locker_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
	"github.com/lockerproject/locker/fence"
)

// open stands for locker.Open with the URL of a store.
func open() *locker.Client { return locker.New(memory.New()) }

func Example() {
	ctx := context.Background()
	l, err := locker.Open(ctx, "memory://shop") // or redis://localhost:6379, etcd://…
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()

	stock := 1
	err = locker.Do(ctx, l, "stock", func(ctx context.Context) error {
		if stock == 0 {
			return errors.New("sold out")
		}
		stock--
		return ctx.Err() // ctx ends if the lock is lost
	})
	fmt.Println(stock, err)
	// Output: 0 <nil>
}

func ExampleOpen() {
	// The program imports a driver for its side effect, or all of them:
	//	import _ "github.com/lockerproject/locker/driver/all"
	l, err := locker.Open(context.Background(), "memory://jobs?ttl=10s")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer l.Close()
	fmt.Println(l.Ping(context.Background())) // most drivers do not ask the store in Open
	// Output: <nil>
}

func ExampleOpen_refused() {
	_, err := locker.Open(context.Background(), "memory://jobs?tll=10s")
	fmt.Println(err)
	// Output: locker: open memory://jobs: unknown parameter "tll" (known: prefix, ttl)
}

func ExampleNew() {
	l := locker.New(memory.New(), // or redis.New(client), etcd.New(client), …
		locker.WithDefaults(locker.WithTTL(10*time.Second), locker.WithWait(5*time.Second)),
		locker.WithSafetyMargin(500*time.Millisecond))
	defer l.Close()
	lock, err := l.Acquire(context.Background(), "invoice:7")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(lock.Name(), lock.Release(context.Background()))
	// Output: invoice:7 <nil>
}

func ExampleDo() {
	l := open()
	defer l.Close()
	err := locker.Do(context.Background(), l, "order:42", func(ctx context.Context) error {
		lock, _ := locker.FromContext(ctx)
		return ship(ctx, 42, lock.Token())
	})
	fmt.Println(err)
	// Output:
	// order 42 is shipped, with a token: true
	// <nil>
}

// The resource has a fence, so work that it has accepted counts, even if the lock was lost
// before the release.
func ExampleDoError() {
	l := open()
	defer l.Close()
	var (
		guard fence.Guard
		stock = 10
	)
	err := locker.Do(context.Background(), l, "stock:42", func(ctx context.Context) error {
		lock, _ := locker.FromContext(ctx)
		err := guard.Do(lock, func() error { stock--; return nil })
		_ = l.Break(context.Background(), "stock:42", lock.Token()) // the lock is lost after that
		return err
	})
	var lost *locker.DoError
	if errors.As(err, &lost) {
		err = lost.Result // nil: the fence has accepted the work; fence.ErrStale: it has not
	}
	fmt.Println(stock, err)
	// Output: 9 <nil>
}

func ship(_ context.Context, order int, token uint64) error {
	fmt.Printf("order %d is shipped, with a token: %v\n", order, token > 0)
	return nil
}

func ExampleClient_Acquire() {
	l := open()
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // bounds the wait alone
	defer cancel()
	lock, err := l.Acquire(ctx, "report", locker.WithNote("monthly report"))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lock.Release(ctx) // works with a ctx that has ended

	work := lock.Context(context.Background()) // ends when the lock is lost or released
	fmt.Println(work.Err())
	// Output: <nil>
}

func ExampleClient_TryAcquire() {
	l := open()
	defer l.Close()
	ctx := context.Background()
	first, _ := l.Acquire(ctx, "job")
	defer first.Release(ctx)

	_, err := l.TryAcquire(ctx, "job")
	switch {
	case errors.Is(err, locker.ErrUnavailable):
		fmt.Println(http.StatusServiceUnavailable) // the store did not answer
	case errors.Is(err, locker.ErrNotAcquired):
		fmt.Println(http.StatusConflict) // somebody else has it
	}
	// Output: 409
}

func ExampleShared() {
	l := open()
	defer l.Close()
	ctx := context.Background()
	reader1, _ := l.Acquire(ctx, "document", locker.Shared())
	reader2, _ := l.Acquire(ctx, "document", locker.Shared())
	_, err := l.TryAcquire(ctx, "document") // a writer
	fmt.Println(errors.Is(err, locker.ErrNotAcquired))
	_ = reader1.Release(ctx)
	_ = reader2.Release(ctx)
	writer, err := l.TryAcquire(ctx, "document")
	fmt.Println(err, writer.Release(ctx))
	// Output:
	// true
	// <nil> <nil>
}

func ExampleLimit() {
	l := open()
	defer l.Close()
	ctx := context.Background()
	for i := range 3 {
		_, err := l.TryAcquire(ctx, "api", locker.Limit(2)) // one of two permits
		fmt.Println(i, errors.Is(err, locker.ErrNotAcquired))
	}
	// Output:
	// 0 false
	// 1 false
	// 2 true
}

func ExampleAcquireAll() {
	l := open()
	defer l.Close()
	ctx := context.Background()
	lock, err := locker.AcquireAll(ctx, l, []string{"account:9", "account:4"}) // in any order
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lock.Release(ctx)
	for _, k := range lock.Locks() {
		fmt.Println(k.Name(), k.Token() > 0) // each resource has a token of its own
	}
	// Output:
	// account:4 true
	// account:9 true
}

func ExampleWithOwner() {
	l := open()
	defer l.Close()
	ctx := context.Background()
	outer, _ := l.Acquire(ctx, "cart:1", locker.WithOwner("session-77"))
	inner, err := l.Acquire(ctx, "cart:1", locker.WithOwner("session-77")) // re-enters
	fmt.Println(err, inner.Token() == outer.Token())
	_ = inner.Release(ctx)
	_ = outer.Release(ctx) // the last release frees the lock
	// Output: <nil> true
}

func ExampleWithoutReentry() {
	l := open()
	defer l.Close()
	ctx := context.Background()
	outer, _ := l.Acquire(ctx, "cart:1")
	defer outer.Release(ctx)
	// A goroutine that is started with this context re-enters. One that must
	// exclude the others says so.
	work := outer.Context(ctx)
	_, err := l.TryAcquire(work, "cart:1", locker.WithoutReentry())
	fmt.Println(errors.Is(err, locker.ErrNotAcquired))
	// Output: true
}

func ExampleWithMinHold() {
	l := open()
	defer l.Close()
	ctx := context.Background()
	nightly := func() {
		lock, err := l.TryAcquire(ctx, "nightly", locker.WithMinHold(time.Hour))
		if errors.Is(err, locker.ErrNotAcquired) {
			fmt.Println("done already")
			return
		}
		fmt.Println("running")
		_ = lock.Release(ctx) // the lock is passed on when the hour is over
	}
	nightly()
	nightly() // on another machine, whose clock is a minute late
	// Output:
	// running
	// done already
}

func ExampleWithObserver() {
	ctx := context.Background()
	l := locker.New(memory.New(), locker.WithObserver(func(_ context.Context, e locker.Event) {
		fmt.Println(e.Name, e.Kind)
	}))
	defer l.Close()
	lock, _ := l.Acquire(ctx, "job")
	_, _ = l.TryAcquire(ctx, "job")
	_ = lock.Release(ctx)
	// Output:
	// job acquired
	// job failed
	// job released
}

func ExampleLock_Extend() {
	l := open()
	defer l.Close()
	ctx := context.Background()
	lock, _ := l.Acquire(ctx, "job", locker.WithTTL(10*time.Second), locker.WithoutRenewal())
	defer lock.Release(ctx)
	fmt.Println(lock.Extend(ctx, time.Minute)) // from now
	q, _ := l.Inspect(ctx, "job")
	fmt.Println(q.Tickets[0].Remaining > 50*time.Second)
	// Output:
	// <nil>
	// true
}

func ExampleClient_Inspect() {
	l := open()
	defer l.Close()
	ctx := context.Background()
	lock, _ := l.Acquire(ctx, "job", locker.WithOwner("worker-1"), locker.WithNote("import of May"))
	defer lock.Release(ctx)
	q, err := l.Inspect(ctx, "job")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, t := range q.Tickets { // in order, holders first
		fmt.Printf("held: %v, by %s: %s\n", t.Held, t.Owner, t.Note)
	}
	// Output: held: true, by worker-1: import of May
}

// A resource that remembers the greatest token it has seen refuses a holder that
// was paused beyond the end of its lease.
func ExampleLock_Token() {
	l := open()
	defer l.Close()
	ctx := context.Background()
	var file guarded

	late, _ := l.Acquire(ctx, "file")
	_ = l.Break(ctx, "file", late.Token()) // stands for the end of its lease during a pause
	next, _ := l.Acquire(ctx, "file")
	fmt.Println(file.write("by the next holder", next.Token()))
	fmt.Println(file.write("by the late holder", late.Token()))
	// Output:
	// <nil>
	// stale token
}

// guarded is a resource that checks fencing tokens.
type guarded struct {
	token uint64
	text  string
}

func (g *guarded) write(text string, token uint64) error {
	if token < g.token {
		return errors.New("stale token")
	}
	g.token, g.text = token, text
	return nil
}
