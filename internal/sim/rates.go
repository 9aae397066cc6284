package sim

import (
	"sync"
	"time"
)

// rates counts the messages of each process. Who waits for notifications does not ask all the time.
type rates struct {
	most int // of all processes, after which the run ends; 0: any number

	mu     sync.Mutex
	all    int
	since  map[string]time.Time // nil: nobody wants to know whether a process is in a loop
	number map[string]int
	told   bool
}

// mostMessages is after how many messages most runs end, even if their processes have more to do: a run costs by the message,
// and the dearest twentieth of all, in which somebody polls for minutes, costs as much as half of the others.
const mostMessages = 800

// A process may send so many messages in that time. A run of a store with sessions, which is not polled, goes on until that is known.
const (
	rateTime = 30 * time.Second
	mostRate = 2000
)

// limit has the run end after mostMessages, or more if sessions says that the store is not polled.
func (r *rates) limit(sessions bool) {
	if r.most = mostMessages; sessions {
		r.most += mostRate
	}
}

// begin has loops looked for.
func (r *rates) begin() {
	r.since, r.number = make(map[string]time.Time), make(map[string]int)
}

// count counts a message. Stores with sessions notify; the others are polled.
func (r *rates) count(w *world, process string) {
	r.mu.Lock()
	if r.all++; r.all == r.most {
		defer w.stop()
	}
	if w.sessions == 0 || r.since == nil {
		r.mu.Unlock()
		return
	}
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
		w.stop()
	}
}
