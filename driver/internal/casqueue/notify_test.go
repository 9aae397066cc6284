package casqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// watching is a store that reports changes.
type watching struct{ *process }

func (w watching) Watch(ctx context.Context, key string, changed func()) error {
	for last := (Version{0, 1}); ; {
		w.fake.mu.Lock()
		if w.fake.changed == nil {
			w.fake.changed = make(chan struct{})
		}
		v, wait := w.find(key).Version, w.fake.changed
		w.fake.mu.Unlock()
		if v != last {
			last = v
			changed()
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// On a store that reports changes a hand-off takes some requests, and waiting takes only those that look for expired
// tickets.
func TestWatch(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		other, _ := b.open(func(o *Options) { o.Store = watching{o.Store.(*process)} })
		b.take(e, request("a", "1"))
		got := b.waits(other, request("a", "2"))
		time.Sleep(2300 * time.Millisecond)
		gets := b.count("get")
		time.Sleep(2 * time.Second)
		if n := b.count("get") - gets; n > 3 {
			b.Errorf("%d readings in two seconds of waiting", n)
		}
		gets = b.count("get")
		begun := time.Now()
		if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
			b.Fatal(err)
		}
		if err := <-got; err != nil || time.Since(begun) > 2*time.Millisecond {
			b.Errorf("granted %v after the release (%v)", time.Since(begun), err)
		}
		if n := b.count("get") - gets; n > 2 {
			b.Errorf("%d readings for a hand-off: want one to release and one to know of the grant", n)
		}
	})
}

// A release of a large queue notifies the process that it grants, and not those behind. On a store that reports changes, these do not read
// the queue either.
func TestOnlyGrantsAreNotified(t *testing.T) {
	for name, opts := range map[string][]func(*Options){
		"polls":   nil,
		"watches": {func(o *Options) { o.Store = watching{o.Store.(*process)} }},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(b *bed) {
				holder, p := b.open(opts...)
				b.take(holder, heavy("a", "1"))
				var got []<-chan error
				for i := range 3 {
					e, _ := b.open(opts...)
					got = append(got, b.waits(e, request("a", fmt.Sprint(i+2))))
				}
				time.Sleep(2300 * time.Millisecond) // between two samples of the waiters
				notified := p.notified()
				gets := b.count("get")
				if err := holder.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
					b.Fatal(err)
				}
				if err := <-got[0]; err != nil {
					b.Fatal(err)
				}
				time.Sleep(10 * time.Millisecond)
				if n := notified.Load(); n != 1 {
					b.Errorf("%d notifications, want one", n)
				}
				if n := b.count("get") - gets; n > 2 && opts != nil {
					b.Errorf("%d readings, want one to release and one to know of the grant", n)
				}
			})
		})
	}
}

// notified counts the notifications of a process.
func (p *process) notified() *atomic.Int32 {
	n := new(atomic.Int32)
	p.with(func(verb, key string) fault {
		if verb == "set" && strings.Contains(key, ":n:") {
			n.Add(1)
		}
		return fine
	})
	return n
}

// Nobody is notified of the grant of a ticket whose process reads the queue. Once the queue has become large, it does not, and
// is notified, also when the queue is small again.
func TestNotifiedSinceQueueIsLarge(t *testing.T) {
	for _, c := range []struct{ grows, shrinks bool }{{}, {grows: true}, {grows: true, shrinks: true}} {
		bubble(t, func(b *bed) {
			holder, p := b.open()
			r := request("a", "1")
			r.TTL = time.Hour
			b.take(holder, r)
			e, waiter := b.open()
			got := b.waits(e, request("a", "2"))
			want := int32(0)
			if last, _ := b.open(); c.grows {
				want = 1
				b.waits(last, heavy("a", "3"))
				time.Sleep(100 * time.Millisecond) // it has seen that
				if n := b.readings(waiter, "a"); n > 15 {
					b.Errorf("%+v: %d readings of a large queue in 10 s", c, n)
				}
				if c.shrinks {
					if err := last.Release(b.Context(), driver.Hold{Name: "a", ID: "3"}); err != nil {
						b.Fatal(err)
					}
				}
			}
			n := p.notified()
			begun := time.Now()
			if err := holder.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
				b.Fatal(err)
			}
			if err := <-got; err != nil || time.Since(begun) > 60*time.Millisecond {
				b.Errorf("%+v: granted %v after the release (%v)", c, time.Since(begun), err)
			}
			time.Sleep(10 * time.Millisecond)
			if n := n.Load(); n != want {
				b.Errorf("%+v: %d notifications, want %d", c, n, want)
			}
		})
	}
}

// forgetful is a store that begins to watch, and reports nothing.
type forgetful struct{ watching }

func (w forgetful) Watch(ctx context.Context, _ string, changed func()) error {
	changed()
	<-ctx.Done()
	return ctx.Err()
}

// A notification that the store does not report delays a grant by a second at most.
func TestWatchMisses(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		other, _ := b.open(func(o *Options) { o.Store = forgetful{watching{o.Store.(*process)}} })
		b.take(e, request("a", "1"))
		got := b.waits(other, request("a", "2"))
		time.Sleep(3300 * time.Millisecond)
		begun := time.Now()
		if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
			b.Fatal(err)
		}
		if err := <-got; err != nil || time.Since(begun) > time.Second+10*time.Millisecond {
			b.Errorf("granted %v after the release (%v)", time.Since(begun), err)
		}
	})
}

// ending is a store that stops watching.
type ending struct {
	watching
	end chan struct{}
}

func (w ending) Watch(ctx context.Context, _ string, changed func()) error {
	select {
	case <-w.end:
		return errNotDone
	default:
	}
	changed()
	select {
	case <-w.end:
	case <-ctx.Done():
	}
	return errNotDone
}

// A process whose store stops watching polls at once.
func TestWatchEnds(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		end := make(chan struct{})
		other, _ := b.open(func(o *Options) { o.Store = ending{watching{o.Store.(*process)}, end} })
		b.take(e, request("a", "1"))
		got := b.waits(other, request("a", "2"))
		time.Sleep(3300 * time.Millisecond)
		close(end)
		begun := time.Now()
		if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
			b.Fatal(err)
		}
		if err := <-got; err != nil || time.Since(begun) > 110*time.Millisecond {
			b.Errorf("granted %v after the release (%v)", time.Since(begun), err)
		}
	})
}

// refusing is a store that refuses to watch for some time.
type refusing struct {
	watching
	until time.Time
	asked *atomic.Int32
}

func (w refusing) Watch(ctx context.Context, key string, changed func()) error {
	w.asked.Add(1)
	if time.Now().Before(w.until) {
		return errNotDone
	}
	return w.watching.Watch(ctx, key, changed)
}

// A store that refuses to watch is asked again, less and less often, and polled meanwhile.
func TestWatchRefused(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		var asked atomic.Int32
		other, _ := b.open(func(o *Options) {
			o.Store = refusing{watching{o.Store.(*process)}, time.Now().Add(8 * time.Second), &asked}
		})
		b.take(e, request("a", "1"))
		got := b.waits(other, request("a", "2"))
		time.Sleep(8 * time.Second)
		if n := asked.Load(); n < 3 || n > 7 {
			b.Errorf("asked %d times in eight seconds", n)
		}
		begun := time.Now()
		if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
			b.Fatal(err)
		}
		if err := <-got; err != nil || time.Since(begun) > 110*time.Millisecond {
			b.Errorf("granted %v after the release (%v)", time.Since(begun), err)
		}
		b.take(e, request("c", "3"))
		got = b.waits(other, request("c", "4"))
		time.Sleep(6 * time.Second)
		gets := b.count("get")
		time.Sleep(2 * time.Second)
		if n := b.count("get") - gets; n > 3 {
			b.Errorf("%d readings in two seconds of waiting, though the store watches now", n)
		}
		if err := e.Release(b.Context(), driver.Hold{Name: "c", ID: "3"}); err != nil {
			b.Fatal(err)
		}
		if err := <-got; err != nil {
			b.Error(err)
		}
	})
}

// Ping fails if the store refuses a write or a reading.
func TestPing(t *testing.T) {
	bubble(t, func(b *bed) {
		e, p := b.open()
		if err := e.Ping(b.Context()); err != nil {
			b.Error(err)
		}
		for _, verb := range []string{"set", "get"} {
			p.once(verb, notDone)
			if err := e.Ping(b.Context()); !errors.Is(err, errNotDone) {
				b.Errorf("without an answer to a %s: %v", verb, err)
			}
		}
	})
}

// A notification that is lost delays a grant by a second at most.
func TestNotificationLost(t *testing.T) {
	bubble(t, func(b *bed) {
		e, p := b.open()
		other, _ := b.open()
		b.take(e, heavy("a", "1"))
		got := b.waits(other, heavy("a", "2"))
		last := b.waits(other, request("a", "3"))
		time.Sleep(5 * time.Second)
		p.with(func(verb, key string) fault {
			if verb == "set" && strings.Contains(key, ":n:") {
				return notDone
			}
			return fine
		})
		begun := time.Now()
		if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
			b.Fatal(err)
		}
		if err := <-got; err != nil || time.Since(begun) > time.Second+10*time.Millisecond {
			b.Errorf("granted %v after the release (%v)", time.Since(begun), err)
		}
		if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: "2"}); err != nil {
			b.Fatal(err)
		}
		if err := <-last; err != nil || time.Since(begun) > 2*(time.Second+10*time.Millisecond) {
			b.Errorf("granted %v after the release before (%v)", time.Since(begun), err)
		}
	})
}

// A process that reads what it has written, before the write is answered, notifies the others all the same.
func TestNotifiedThoughRead(t *testing.T) {
	bubble(t, func(b *bed) {
		e, p := b.open()
		other, _ := b.open()
		for i := range 5 {
			id, next := fmt.Sprint("e", i), fmt.Sprint("other", i)
			b.take(e, heavy("a", id))
			got := b.waits(other, request("a", next))
			time.Sleep(300 * time.Millisecond)
			b.queue(e, "a") // so that the release is written at once
			p.once("put", slow)
			begun := time.Now()
			released := make(chan error)
			go func() { released <- e.Release(b.Context(), driver.Hold{Name: "a", ID: id}) }()
			time.Sleep(20 * time.Millisecond)
			if ids := b.queue(e, "a"); len(ids) != 1 {
				b.Errorf("queue %q while the answer is on its way", ids)
			}
			if err := errors.Join(<-released, <-got); err != nil || time.Since(begun) > 150*time.Millisecond {
				b.Errorf("granted %v after the release (%v)", time.Since(begun), err)
			}
			if err := other.Release(b.Context(), driver.Hold{Name: "a", ID: next}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A waiter whose ticket is removed is notified.
func TestRemovedIsNotified(t *testing.T) {
	bubble(t, func(b *bed) {
		e, _ := b.open()
		other, _ := b.open()
		g := b.take(e, heavy("a", "1"))
		got := b.waits(other, request("a", "2"))
		time.Sleep(300 * time.Millisecond)
		begun := time.Now()
		if err := e.Break(b.Context(), "a", g.Token+1); err != nil {
			b.Fatal(err)
		}
		if err := <-got; !errors.Is(err, driver.ErrLost) || time.Since(begun) > 150*time.Millisecond {
			b.Errorf("the waiter got %v, %v after its ticket was removed", err, time.Since(begun))
		}
	})
}

// A queue that has stood still for long, and moves fast then, moves as fast as D13 wants: a waiter need not know before that it
// is the next. Each of its requests takes some milliseconds.
func TestMovesAfterStandstill(t *testing.T) {
	for phase := range 30 {
		bubble(t, func(b *bed) {
			e, _ := b.open()
			b.take(e, request("a", "0"))
			var got []<-chan error
			for i := range 6 {
				w, p := b.open()
				p.with(func(string, string) fault {
					time.Sleep(3 * time.Millisecond)
					return fine
				})
				got = append(got, b.waits(w, request("a", fmt.Sprint(i+1))))
			}
			time.Sleep(10*time.Second + time.Duration(phase)*7*time.Millisecond)
			for i := range got {
				if err := e.Release(b.Context(), driver.Hold{Name: "a", ID: fmt.Sprint(i)}); err != nil {
					b.Fatal(err)
				}
				begun := time.Now()
				if err := <-got[i]; err != nil || time.Since(begun) > 100*time.Millisecond {
					b.Errorf("granted %v after the release (%v)", time.Since(begun), err)
				}
				time.Sleep(time.Duration(phase) * time.Millisecond)
			}
		})
	}
}

// A process that releases and ends at once, as a command does, has notified the next waiter (D13). Close waits for
// that no longer than D17 allows.
func TestReleaseAndClose(t *testing.T) {
	for _, answers := range []bool{true, false} {
		bubble(t, func(b *bed) {
			holder, p := b.open()
			b.take(holder, heavy("a", "1"))
			e, _ := b.open()
			got := b.waits(e, request("a", "2"))
			time.Sleep(2500 * time.Millisecond) // between two samples of the waiter
			if !answers {
				p.with(func(verb, _ string) fault { return map[string]fault{"set": never}[verb] })
			}
			begun := time.Now()
			if err := holder.Release(b.Context(), driver.Hold{Name: "a", ID: "1"}); err != nil {
				b.Fatal(err)
			}
			_ = holder.Close()
			if took := time.Since(begun); took > 150*time.Millisecond || answers && took > time.Millisecond {
				b.Errorf("release and close took %v (the store answers notifications: %v)", took, answers)
			}
			if err := <-got; err != nil {
				b.Fatal(err)
			}
			if took := time.Since(begun); took > 100*time.Millisecond && answers {
				b.Errorf("granted %v after the release", took)
			}
		})
	}
}
