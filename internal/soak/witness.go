//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// remembered is how long the witness remembers a hold that has ended. It is longer than any
// event takes to arrive.
const remembered = 2 * time.Minute

// settle is how late the reports of other workers may be when a wait is judged.
const settle = 10 * time.Second

// A witness judges what the workers report. Its methods may be called from any goroutine.
type witness struct {
	// recovery is how long after a fault a wait may be long: the bounds of the driver for
	// the longest TTL in use.
	recovery time.Duration
	// patience is how long nobody may hold a name that somebody waits for.
	patience time.Duration
	// grace is the longest TTL: two may hold for so long after a fault that excuses it.
	grace time.Duration

	mu       sync.Mutex
	totals   *totals
	names    map[string]*queue
	faults   []fault // the times of faults that are remembered
	busy     []busy  // times when the machine was too busy to run the coordinator
	waits    []event // to be judged when they have settled
	reported map[string]bool
}

// A fault is what was done to the store or a worker, and when.
type fault struct {
	span
	name   string
	excuse bool
}

type busy struct {
	at   int64
	late time.Duration
}

// A queue is what the witness remembers of one name.
type queue struct {
	holds  []*hold
	before hold // of those that are forgotten: the latest time of a grant, and the greatest token
}

// A hold is a lock that was held from At to last, at the least.
type hold struct {
	event
	last  int64
	ended bool
}

func (h *hold) span() span { return span{h.At, h.last} }

func (h *hold) String() string {
	mode := "exclusive"
	switch {
	case h.Mode < 0:
		mode = "shared"
	case h.Mode > 0:
		mode = fmt.Sprintf("one of %d", h.Mode)
	}
	return fmt.Sprintf("%s %s, token %d, by %s: asked at %s, held at %s and still at %s",
		h.Name, mode, h.Token, h.ID, seconds(h.From), seconds(h.At), seconds(h.last))
}

func newWitness(t *totals) *witness {
	return &witness{totals: t, names: map[string]*queue{}, reported: map[string]bool{}}
}

// observe takes one event of a worker.
func (w *witness) observe(e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	q := w.names[e.Name]
	if q == nil {
		q = &queue{}
		w.names[e.Name] = q
	}
	switch e.Kind {
	case granted:
		w.grant(q, e)
	case alive, released, lost:
		w.extend(q, e)
	case refused:
		w.totals.refuse(e, w.faulty(span{e.From, e.At}))
		if e.Wait {
			w.waits = append(w.waits, e)
		}
	case late:
		w.totals.Late++
	case reason:
		w.totals.lose(e.Why, w.faulty(span{e.At, e.At}))
	case broken:
		w.violate(e.ID, e.Why, e.At) // once for each text
	}
}

func (w *witness) grant(q *queue, e event) {
	h := &hold{event: e, last: e.At}
	w.totals.grant(e, w.faulty(span{e.From, e.At}))
	if e.Wait {
		w.waits = append(w.waits, e)
	}
	for _, o := range q.holds {
		w.checkTokens(o, h)
	}
	if q.before.At > 0 && e.From > q.before.At && e.Token <= q.before.Token {
		w.violate(h.ID, "a token that is not greater than an earlier one of the name", h.At, h, &q.before)
	}
	q.holds = append(q.holds, h)
	w.checkOverlap(q, h, h.At)
}

func (w *witness) extend(q *queue, e event) {
	i := len(q.holds) - 1
	for i >= 0 && q.holds[i].ID != e.ID {
		i--
	}
	if i < 0 {
		return // it ended before the report came, which is older than the witness remembers
	}
	h := q.holds[i]
	since := h.last
	h.last = max(h.last, e.At)
	h.ended = e.Kind != alive
	w.checkOverlap(q, h, since)
}

func (w *witness) checkTokens(a, b *hold) {
	if b.At < a.At {
		a, b = b, a
	}
	pair := a.ID + " " + b.ID
	switch {
	case a.Token == b.Token:
		w.violate(pair, "two grants with one token", b.At, a, b)
	case b.Token > a.Token:
	case b.From > a.At:
		w.violate(pair, "a token that is not greater than that of a grant before the request", b.At, a, b)
	case conflict(a, b) && !w.excused(b.At):
		w.violate(pair, "a grant that arrives after one with a greater token", b.At, a, b)
	}
}

// conflict reports whether one of the two excludes the other.
func conflict(a, b *hold) bool { return a.Mode == 0 || b.Mode == 0 }

// checkOverlap compares h, which has been extended from since on, with all others.
func (w *witness) checkOverlap(q *queue, h *hold, since int64) {
	news := span{since, h.last}
	for _, o := range q.holds {
		if o == h || !o.span().meets(news) {
			continue
		}
		if conflict(o, h) {
			w.overlap("two holders at once", o, h)
		} else if o.At >= since && o.At <= h.last {
			w.checkLimit(q, h, o.At)
		}
	}
	w.checkLimit(q, h, h.At)
}

// checkLimit counts those who hold a permit at one time.
func (w *witness) checkLimit(q *queue, h *hold, at int64) {
	if h.Mode <= 0 {
		return
	}
	var holders []*hold
	for _, o := range q.holds {
		if o.Mode > 0 && o.span().meets(span{at, at}) {
			holders = append(holders, o)
		}
	}
	if len(holders) > h.Mode {
		w.overlap("more holders than permits", holders...)
	}
}

func (w *witness) overlap(what string, holders ...*hold) {
	var ids []string
	var begin int64
	for _, h := range holders {
		ids = append(ids, h.ID)
		begin = max(begin, h.At)
	}
	slices.Sort(ids)
	key := strings.Join(ids, " ")
	if !w.excused(begin) {
		w.violate(key, what, begin, holders...)
	} else if !w.reported[key] {
		w.reported[key] = true
		w.totals.Excused++
	}
}

// violate records a violation, once for each key and kind.
func (w *witness) violate(key, what string, at int64, holders ...*hold) {
	if w.reported[what+key] {
		return
	}
	w.reported[what+key] = true
	var b strings.Builder
	fmt.Fprintf(&b, "%s, at %s", what, seconds(at))
	for _, h := range holders {
		fmt.Fprintf(&b, "\n\t%v", h)
	}
	for _, f := range w.faults {
		if f.meets(span{at - int64(w.recovery), at}) {
			fmt.Fprintf(&b, "\n\tfault: %s from %s to %s", f.name, seconds(f.from), seconds(f.to))
		}
	}
	w.totals.Violations = append(w.totals.Violations, b.String())
	w.totals.violated++
	fmt.Println("VIOLATION:", b.String())
}

// begin notes that a fault begins. The function that it returns notes its end.
func (w *witness) begin(name string, excuse bool) (end func()) {
	const forever = 1 << 62
	w.mu.Lock()
	defer w.mu.Unlock()
	w.totals.Faults[name]++
	at := now()
	w.faults = append(w.faults, fault{span{at, forever}, name, excuse})
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range w.faults {
			if f := &w.faults[i]; f.name == name && f.from == at {
				f.to = now()
			}
		}
	}
}

// faulty reports whether a fault was on in s, or had been shortly before.
func (w *witness) faulty(s span) bool {
	s.from -= int64(w.recovery)
	return slices.ContainsFunc(w.faults, func(f fault) bool { return f.meets(s) })
}

func (w *witness) excused(at int64) bool {
	return slices.ContainsFunc(w.faults, func(f fault) bool {
		return f.excuse && f.meets(span{at - int64(w.grace), at})
	})
}

// wasLate notes that the machine ran the coordinator later than it asked for.
func (w *witness) wasLate(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.busy = append(w.busy, busy{now(), d})
	w.totals.Starved += d
}

// gone ends all that a worker process held, which has ended.
func (w *witness) gone(worker string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range w.names {
		for _, h := range q.holds {
			if strings.HasPrefix(h.ID, worker+"/") {
				h.ended = true
			}
		}
	}
}

// sweep judges the waits that have settled at the given time, and forgets what is old then.
func (w *witness) sweep(at int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	settled := at - int64(settle)
	w.waits = slices.DeleteFunc(w.waits, func(e event) bool {
		if e.At > settled {
			return false
		}
		w.checkWait(e)
		return true
	})
	old := at - int64(remembered)
	for name, q := range w.names {
		q.holds = slices.DeleteFunc(q.holds, func(h *hold) bool {
			if !h.ended || h.last > old {
				return false
			}
			if h.Token > q.before.Token {
				at := q.before.At
				q.before = *h
				q.before.At = at
			}
			q.before.At = max(q.before.At, h.At)
			return true
		})
		if len(q.holds) == 0 && strings.HasPrefix(name, solo) {
			delete(w.names, name)
		}
	}
	w.faults = slices.DeleteFunc(w.faults, func(f fault) bool { return f.to < old-int64(10*remembered) })
	w.busy = slices.DeleteFunc(w.busy, func(b busy) bool { return b.at < old-int64(10*remembered) })
}

// checkWait looks for a time in which nobody held the name, although e waited and no
// fault had been on.
func (w *witness) checkWait(e event) {
	taken := []span{{e.At, e.At}}
	for _, h := range w.names[e.Name].holds {
		taken = append(taken, h.span())
	}
	for _, f := range w.faults {
		taken = append(taken, span{f.from, f.to + int64(w.recovery)})
	}
	slices.SortFunc(taken, func(a, b span) int { return int(min(1, max(-1, a.from-b.from))) })
	reached := e.From
	for _, s := range taken {
		gap := span{reached, min(s.from, e.At)}
		if d := time.Duration(gap.to - gap.from); d > w.patience && d > w.patience+w.lateIn(gap) {
			h := &hold{event: e, last: e.At}
			w.violate(fmt.Sprint(e.Name, gap.from), fmt.Sprintf("nobody held the name for %v while somebody waited", d), gap.to, h)
		}
		reached = max(reached, s.to)
	}
}

// lateIn is what the machine took from everybody in that time, by a generous estimate.
func (w *witness) lateIn(s span) (sum time.Duration) {
	for _, b := range w.busy {
		if b.at >= s.from && b.at <= s.to+int64(b.late) {
			sum += 3 * b.late
		}
	}
	return sum
}

// note changes the figures of the run.
func (w *witness) note(f func(*totals)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w.totals)
}

func (w *witness) save(dir string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.totals.save(dir)
}

func (w *witness) summary() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.totals
	return fmt.Sprintf("%v: %d grants, %d faults, %d locks lost, %d violations", t.Ran.Round(time.Second), sum(t.Grants), sum(t.Faults), sum(t.Lost), len(t.Violations))
}
