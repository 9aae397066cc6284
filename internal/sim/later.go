package sim

import (
	"sync/atomic"
	"time"
)

// A message that is late does the most harm just after others have written: a deletion when its key is used
// again, a write when what it was for is gone, an answer when what it shows has changed. So some of them come
// when so many other writes have been done (once.writes), or at their time, if that is sooner.

// parked is a late message that waits for other writes. world.mu guards it.
type parked struct {
	left int
	come func()
}

// park has come called soon after so many writes have been done.
func (w *world) park(writes int, come func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.parked = append(w.parked, &parked{writes, come})
}

// wrote counts a write that was done.
func (w *world) wrote(rnd *stream) {
	w.mu.Lock()
	var due []*parked
	rest := w.parked[:0]
	for _, p := range w.parked {
		if p.left--; p.left > 0 {
			rest = append(rest, p)
		} else {
			due = append(due, p)
		}
	}
	w.parked = rest
	w.mu.Unlock()
	for _, p := range due {
		w.at(time.Now().Add(rnd.between(time.Microsecond, 20*time.Millisecond)), p.come)
	}
}

// atOrWritten runs f at t or, if that is late because of a fault of that kind, when others have written.
// Then the fault is over.
func (p *path) atOrWritten(t time.Time, one *once, kind string, f func()) {
	if one.is(kind) && one.writes > 0 {
		var came atomic.Bool // sync.Once would hold a mutex meanwhile, which no bubble gets past
		come := f
		f = func() {
			if !came.Swap(true) {
				p.w.endFault(kind, p.process)
				come()
			}
		}
		p.w.park(one.writes, f)
	}
	p.w.at(t, f)
}

// sleepOrWritten is atOrWritten for who waits.
func (p *path) sleepOrWritten(d time.Duration, one *once, kind string) {
	if !one.is(kind) || one.writes == 0 {
		p.w.sleep(d)
		return
	}
	over := make(chan struct{})
	p.atOrWritten(time.Now().Add(d), one, kind, func() { close(over) })
	<-over
}

// endFault ends the fault of a kind that concerns a process, if there is one alone.
func (w *world) endFault(kind, process string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, last := time.Now(), -1
	for i, f := range w.faults {
		if f.kind != kind || f.process != process || !f.to.After(now) {
			continue
		}
		if last >= 0 {
			return
		}
		last = i
	}
	if last >= 0 {
		w.faults[last].to = now
	}
}
