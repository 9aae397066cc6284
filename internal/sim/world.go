package sim

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// world is what surrounds the processes: time, servers, and the network between.
type world struct {
	seed  uint64
	begun time.Time

	servers   []*server
	open      func(process string) (driver.Driver, []*path, error)
	watched   bool                                // a dead process is found by whoever waits long enough
	sessions  time.Duration                       // the shortest that the store gives; 0: it has none
	most      time.Duration                       // the longest lease that it gives at a time, by one session for all tickets of a process; 0: any
	liveness  time.Duration                       // after which a waiter of whom a server of Redis or a database hears nothing is dead to it; 0: another store
	drift     float64                             // by which part a server's clock runs faster than those of the processes
	late      time.Duration                       // by how much a grant may come after it was possible, in a healthy world
	slow      time.Duration                       // by how much an answer is late while a minority of the servers does not answer
	both      bool                                // each lock needs two servers
	mixed     bool                                // some processes use one of two stores, where others queue later
	hasSecond bool                                // the second server is asked instead of the first while that is away
	unheard   bool                                // no notices arrive: who waits learns of a break when it compares its tickets, after some heartbeats
	inTurn    bool                                // who waits for a permit is woken by the waiter ahead
	relistens bool                                // who waits asks for what it has missed as soon as its connection is there again
	exact     bool                                // the only errors of the driver are those of its network: the rest is the core's
	pushed    func(process string, h driver.Hold) // is called when a process was notified of a loss

	checked chan struct{} // closed when all names were had, after the last fault
	stopped chan struct{} // closed when the run ends before its time

	mu     sync.Mutex
	used   map[int64]bool // instants at which something wakes
	log    []entry
	faults []interval
	twice  []interval // when requests were done that are sent again
	traps  []*trap
	parked []*parked
	busy   rates
	kinds  kinds             // of messages that were sent; nil: no fault waits for one
	broken []string          // violations
	over   bool              // what comes from now on is none
	names  map[string]string // of ticket IDs, which are random

	done     []func()            // to be called after the run
	departed map[string]departed // tickets, by ID, of which their drivers have said that they are gone
}

// entry is a line of the trace.
type entry struct {
	at   time.Duration
	step bool // else a message
	text string
}

// interval is a time in which a fault was active; process is "" if it concerned all.
type interval struct {
	from, to time.Time
	kind     string
	process  string
	server   int // alone; < 0: all
}

// given is the part of a lease that the store gives at a time.
func (w *world) given(ttl time.Duration) time.Duration {
	if w.most > 0 {
		return min(ttl, w.most)
	}
	return ttl
}

// unique returns the first instant, from t on, at which nothing else wakes. If two
// things woke at one instant, their order would be the scheduler's.
func (w *world) unique(t time.Time) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := t.UnixNano()
	for w.used[n] {
		n++
	}
	w.used[n] = true
	return t.Add(time.Duration(n - t.UnixNano()))
}

// at runs f at t, in a goroutine of its own.
func (w *world) at(t time.Time, f func()) { time.AfterFunc(time.Until(w.unique(t)), f) }

// sleep waits for d, and wakes at an instant of its own.
func (w *world) sleep(d time.Duration) { time.Sleep(time.Until(w.unique(time.Now().Add(d)))) }

// ticket returns a name for a ticket that is the same in each run.
func (w *world) ticket(id string) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.names[id] == "" {
		w.names[id] = fmt.Sprint("#", len(w.names)+1)
	}
	return w.names[id]
}

// step writes a line of the trace.
func (w *world) step(format string, args ...any) { w.note(true, format, args...) }

// message writes a line of the trace that only -messages shows.
func (w *world) message(format string, args ...any) {
	if *traced {
		w.note(false, format, args...)
	}
}

func (w *world) note(step bool, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, entry{time.Since(w.begun), step, text})
}

// stop ends the run before its time; see oracle.cutOff.
func (w *world) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.isStopped() && w.stopped != nil {
		close(w.stopped)
	}
}

func (w *world) isStopped() bool {
	select {
	case <-w.stopped:
		return true
	default:
		return false
	}
}

// fail notes a violation.
func (w *world) fail(format string, args ...any) {
	w.mu.Lock()
	over := w.over
	w.mu.Unlock()
	if over {
		return
	}
	w.step("VIOLATION "+format, args...)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = append(w.broken, fmt.Sprintf("%v: ", time.Since(w.begun))+fmt.Sprintf(format, args...))
}

// fault notes that a fault is active from now until then.
func (w *world) fault(kind, process string, until time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults = append(w.faults, interval{time.Now(), until, kind, process, -1})
}

// concernsAll reports whether a fault has concerned all processes since.
func (w *world) concernsAll(since time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.faults, func(f interval) bool { return f.process == "" && f.to.After(since) })
}

// faultOf says that the last fault concerns one server alone.
func (w *world) faultOf(server int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.faults[len(w.faults)-1].server = server
}

// recovery is how long after a fault its effects may last: requests time out, and pauses
// between tries grow meanwhile.
const recovery = 15 * time.Second

// disturbed reports whether a fault, or its effects, may have concerned a process in that time.
func (w *world) disturbed(process string, from, to time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.faults {
		if (f.process == "" || f.process == process || process == "") && !f.from.After(to) && f.to.Add(recovery).After(from) {
			return true
		}
	}
	return false
}

// aftermath is how long after a fault a waiter may not know of it: until a watch whose
// connection has gone dead is made anew.
const aftermath = time.Minute + recovery

// after is how long the effects of a fault may last. Only what leaves a connection open that
// is dead is not noticed soon.
func (w *world) after(f *interval) time.Duration {
	if w.relistens {
		switch f.kind {
		case "reset", "drop", "deaf":
			return 700 * time.Millisecond
		case "failover":
			return recovery
		}
	}
	switch f.kind {
	case "keep": // who has waited for the answer has it at the end
		if w.sessions > 0 {
			return 200 * time.Millisecond
		}
		return recovery
	case "reset", "lag", "mute", "blur", "drop", "deaf", "hold":
		return recovery
	}
	return aftermath
}

// quietSince returns since when, in that time, no fault has had an effect on these processes;
// none: on any.
func (w *world) quietSince(from, to time.Time, processes ...string) time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, f := range w.faults {
		if f.from.Before(to) && (f.process == "" || len(processes) == 0 || slices.Contains(processes, f.process)) {
			from = latest(from, f.to.Add(w.after(&f)))
		}
	}
	return from
}

// trace returns the last lines of the trace; 0: all.
func (w *world) trace(lines int) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	log := w.log
	if lines > 0 && len(log) > lines {
		log = log[len(log)-lines:]
	}
	var b strings.Builder
	for _, e := range log {
		fmt.Fprintf(&b, "%14v %s\n", e.at, e.text)
	}
	return b.String()
}

// server is one server, with what may happen to it.
type server struct {
	w     *world
	name  string
	model model

	mu       sync.Mutex
	paused   time.Time   // it does nothing until then, and then what has arrived
	down     time.Time   // it refuses connections until then
	starting time.Time   // it reads its data until then, after a crash
	full     time.Time   // it refuses what needs memory, or has no leader, until then
	lost     []time.Time // when it has lost its data
	paths    []*path
}

// model is what a server does.
type model interface {
	restart() (loses bool) // it has been killed, and starts again
	leftovers() []string   // what is there when no ticket is
}

// finder is a model that can say whether a ticket is there.
type finder interface {
	has(name string, token uint64) bool
}

// has reports whether the one server has a ticket.
func (w *world) has(name string, token uint64) bool {
	if len(w.servers) != 1 {
		return false
	}
	k, ok := w.servers[0].model.(finder)
	return ok && k.has(name, token)
}

// forgetful is a model that may forget some leases, and remember others that were released.
type forgetful interface {
	forgotten(name string, token uint64) bool
	remembered(name string) bool
}

func (s *server) state() (paused, down, full time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.paused, s.down, s.full
}

// reads reports whether the server is reading its data, after a crash.
func (s *server) reads() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.starting.After(time.Now())
}

// lostSince reports whether the server has lost its data at or after t.
func (s *server) lostSince(t time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.lost) > 0 && !s.lost[len(s.lost)-1].Before(t)
}

// lostSince reports whether a server has lost its data at or after t.
func (w *world) lostSince(t time.Time) bool {
	for _, s := range w.servers {
		if s.lostSince(t) {
			return true
		}
	}
	return false
}

// forgotten reports whether the servers have lost a lease that was granted at t.
func (w *world) forgotten(name string, token uint64, t time.Time) bool {
	for _, s := range w.servers {
		if f, ok := s.model.(forgetful); ok && f.forgotten(name, token) || !ok && s.lostSince(t) {
			return true
		}
	}
	return false
}

// remembered reports whether a ticket for a name has come back that was released.
func (w *world) remembered(name string) bool {
	for _, s := range w.servers {
		if f, ok := s.model.(forgetful); ok && f.remembered(name) {
			return true
		}
	}
	return false
}
