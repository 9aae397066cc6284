package casqueue

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// storm has the writes of a process come too late, until as many have.
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
			n := b.storm(p, "a", conflicts)
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
