// Package probe tells a measurement of a driver from one of a store, or of a machine,
// that stood still meanwhile. A bound that is a promise of the driver need not be wider
// for that: what was measured beside a stall proves nothing, and is measured again.
package probe

import (
	"sync"
	"time"
)

// pause is the time between two requests.
const pause = 5 * time.Millisecond

// Stall calls f. Meanwhile it calls ask, which sends a cheap request to the store on a
// connection that f does not use, again and again. It returns by how much the slowest of
// these requests, or of the pauses between them, was longer than it had to be: for so
// long f may have had to wait for the store or for a processor. A request that is not
// answered when f ends counts for the time until then.
func Stall(ask, f func()) (stall time.Duration) {
	p := &probe{begun: time.Now()}
	end := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() { p.run(ask, end) })
	defer group.Wait()
	stop := sync.OnceFunc(func() { close(end) })
	defer stop() // also if f ends the goroutine
	f()
	return p.next(0)
}

type probe struct {
	mu    sync.Mutex
	begun time.Time     // when the step that runs was begun
	takes time.Duration // how long it has to take
	worst time.Duration // of the steps before
}

func (p *probe) run(ask func(), end <-chan struct{}) {
	t := time.NewTimer(pause)
	defer t.Stop()
	for {
		p.next(0)
		ask()
		p.next(pause)
		t.Reset(pause)
		select {
		case <-t.C:
		case <-end:
			return
		}
	}
}

// next ends a step and begins another. It returns the worst so far.
func (p *probe) next(takes time.Duration) (worst time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	p.worst = max(p.worst, now.Sub(p.begun)-p.takes)
	p.begun, p.takes = now, takes
	return p.worst
}
