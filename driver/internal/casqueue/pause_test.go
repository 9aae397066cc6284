package casqueue

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// storm makes the next writes of a process conflict, as many as conflicts says.
func (b *bed) storm(p *process, name string, conflicts int32) *atomic.Int32 {
	var n atomic.Int32
	p.with(func(verb, _ string) fault {
		if verb == "put" && n.Load() < conflicts {
			n.Add(1)
			b.touch("t:q:" + hash(name))
		}
		return fine
	})
	return &n
}

// A release does not wait while another change of the same process pauses after conflicts.
func TestReleaseBesidePause(t *testing.T) {
	bubble(t, func(b *bed) {
		e, p := b.open()
		for i := range 10 {
			r := request("a", fmt.Sprint("h", i))
			b.take(e, r)
			n := b.storm(p, "a", conflicts+2) // the last two when the release is asked for
			w := request("a", fmt.Sprint("w", i))
			w.Wait = true
			got := make(chan error, 1)
			go func() {
				_, err := e.Acquire(b.Context(), w)
				got <- err
			}()
			for n.Load() < conflicts {
				time.Sleep(time.Millisecond)
			}
			begun := time.Now()
			if err := e.Release(b.Context(), r.Hold(0)); err != nil {
				b.Fatal(err)
			}
			if took := time.Since(begun); took > 20*time.Millisecond {
				b.Errorf("a release took %v", took)
			}
			if err := <-got; err != nil {
				b.Fatal(err)
			}
			if err := e.Release(b.Context(), w.Hold(0)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// The removal of a holder that has died does not pause for long after conflicts: others wait for it.
func TestRemovalBesideConflicts(t *testing.T) {
	bubble(t, func(b *bed) {
		for i := range 5 {
			dies, _ := b.open()
			r := request("a", fmt.Sprint("dies", i))
			r.TTL = dies.minTTL()
			b.take(dies, r)
			e, p := b.open(timeless) // nothing else is written
			next := request("a", fmt.Sprint("next", i))
			got := b.waits(e, next)
			var first time.Time
			n := 0
			p.with(func(verb, _ string) fault {
				if verb == "put" && n < conflicts {
					if n++; n == 1 {
						first = time.Now()
					}
					b.touch("t:q:" + hash("a"))
				}
				return fine
			})
			_ = dies.Close()
			if err := <-got; err != nil {
				b.Fatal(err)
			}
			if took := time.Since(first); took > 100*time.Millisecond {
				b.Errorf("granted %v after the removal was first written", took)
			}
			p.with(nil)
			if err := e.Release(b.Context(), next.Hold(0)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A process that queues behind many others, on a slow store, does not pause for as long as all of them would take to
// queue.
func TestJoinsLongQueue(t *testing.T) {
	bubble(t, func(b *bed) {
		b.most = 1 << 20
		holder, _ := b.open()
		r := request("a", "holder")
		r.TTL = time.Hour
		b.take(holder, r)
		for i := range 500 {
			go func() {
				w := request("a", fmt.Sprint("w", i))
				w.Wait = true
				_, _ = holder.Acquire(b.Context(), w)
			}()
		}
		for len(b.stored("a")) < 501 {
			time.Sleep(time.Millisecond)
		}
		e, p := b.open()
		const late = 4
		n := 0
		p.with(func(verb, _ string) fault {
			if verb == "put" && n < late {
				n++
				b.touch("t:q:" + hash("a"))
			}
			return slow
		})
		begun := time.Now()
		b.waits(e, request("a", "last"))
		if took := time.Since(begun); took > (late+1)*time.Second {
			b.Errorf("queued after %v and %d conflicts", took, late)
		}
	})
}

// Tickets that are granted together are notified together, even if the store takes some time for each notification.
func TestNotifiedTogether(t *testing.T) {
	bubble(t, func(b *bed) {
		writer, p := b.open()
		b.take(writer, request("a", "writer"))
		var got []<-chan error
		for i := range 12 {
			e, _ := b.open()
			r := request("a", fmt.Sprint(i))
			r.Shared = true
			got = append(got, b.waits(e, r))
			time.Sleep(70 * time.Millisecond) // so that they sample at different times
		}
		time.Sleep(5 * time.Second)
		p.with(func(verb, _ string) fault { return map[string]fault{"set": slow}[verb] })
		if err := writer.Release(b.Context(), driver.Hold{Name: "a", ID: "writer"}); err != nil {
			b.Fatal(err)
		}
		begun := time.Now()
		for _, g := range got {
			if err := <-g; err != nil {
				b.Fatal(err)
			}
		}
		if took := time.Since(begun); took > 200*time.Millisecond {
			b.Errorf("the last was granted %v after the release", took)
		}
	})
}
