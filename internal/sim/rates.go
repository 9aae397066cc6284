package sim

import (
	"sync"
	"time"
)

// rates counts the messages of each process. Who waits for notifications does not ask all the time.
type rates struct {
	over chan struct{} // closed when a process has asked too often; nil: nobody wants to know

	mu     sync.Mutex
	since  map[string]time.Time
	number map[string]int
	told   bool
}

// A process may send so many messages in that time.
const (
	rateTime = 30 * time.Second
	mostRate = 2000
)

// begin has messages counted.
func (r *rates) begin() {
	r.over, r.since, r.number = make(chan struct{}), make(map[string]time.Time), make(map[string]int)
}

// count counts a message. Stores with sessions notify; the others are polled.
func (r *rates) count(w *world, process string) {
	if w.sessions == 0 || r.over == nil {
		return
	}
	r.mu.Lock()
	if now := time.Now(); now.Sub(r.since[process]) > rateTime {
		r.since[process], r.number[process] = now, 0
	}
	r.number[process]++
	most := !r.told && r.number[process] > mostRate
	r.told = r.told || most
	since := r.since[process]
	r.mu.Unlock()
	if most {
		w.fail("%s is in a loop: it has sent %d messages in %v", process, mostRate, time.Since(since))
		close(r.over)
	}
}
