package conformance

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/anishathalye/porcupine"

	"github.com/lockerproject/locker/driver"
)

// This is the model of a queue that porcupine checks. A ticket makes three steps,
// each at one instant of an interval that the client has observed: it is queued, it
// is granted, it leaves. A TryAcquire that is refused is one step. If the outcome is
// unknown to the client (cancelled, cut off, lost), the last step may happen at any
// later time, or never, which for a checker is at the end.
//
// See Herlihy and Wing, "Linearizability" (1990), and, about the checker, Athalye,
// "Testing distributed systems for linearizability" (2017).
type step struct {
	what   stepKind
	ticket int
	token  uint64 // of a queued ticket, if it is known
	kind   kind
}

type stepKind string

const (
	enqueues   stepKind = "is queued"
	isGranted  stepKind = "is granted"
	leaves     stepKind = "leaves"
	isRefused  stepKind = "is refused"
	unobserved          = int64(1) << 62 // an end that was not observed
)

// queueState is a state of the model: the queue, and the greatest token that was
// queued.
type queueState struct {
	queue []position
	last  uint64
}

type position struct {
	ticket int
	kind   kind
}

// queueSpec is the sequential specification. After the given number of steps it
// allows none: a time limit would not work in a bubble of testing/synctest, where a
// search takes no time.
func queueSpec(steps *atomic.Int64) porcupine.Model {
	m := queueModelOf
	m.Step = func(state, input, _ any) (bool, any) {
		if steps.Add(-1) < 0 {
			return false, state
		}
		s, ok := state.(queueState).after(input.(step))
		return ok, s
	}
	return m
}

// describe returns a step as text.
func describe(input, _ any) string {
	s := input.(step) //nolint:forcetypeassert // nothing else is recorded
	return fmt.Sprintf("ticket %d (token %d, %s) %s", s.ticket, s.token, s.kind, s.what)
}

var queueModelOf = porcupine.Model{
	Init: func() any { return queueState{} },
	Equal: func(a, b any) bool {
		x, y := a.(queueState), b.(queueState)
		return x.last == y.last && slices.Equal(x.queue, y.queue)
	},
	Hash: func(state any) uint64 {
		s := state.(queueState)
		h := s.last
		for _, p := range s.queue {
			h = h*1099511628211 + uint64(p.ticket) //nolint:gosec // not negative
		}
		return h
	},
	DescribeOperation: describe,
}

// after returns the state after a step, and whether the step is possible.
func (s queueState) after(st step) (queueState, bool) {
	at := slices.IndexFunc(s.queue, func(p position) bool { return p.ticket == st.ticket })
	switch st.what {
	case enqueues:
		if st.token != 0 && st.token <= s.last {
			return s, false
		}
		return queueState{append(slices.Clip(s.queue), position{st.ticket, st.kind}), max(s.last, st.token)}, true
	case isGranted:
		return s, at >= 0 && grantable(s.queue, at)
	case leaves:
		if at < 0 {
			return s, false
		}
		return queueState{slices.Delete(slices.Clone(s.queue), at, at+1), s.last}, true
	case isRefused:
		with := append(slices.Clip(s.queue), position{st.ticket, st.kind})
		return s, !grantable(with, len(with)-1)
	}
	return s, false
}

func grantable(queue []position, i int) bool {
	ts := make([]driver.Ticket, i+1)
	for j, p := range queue[:i+1] {
		ts[j] = p.kind.ticket()
	}
	return driver.Grantable(ts, i)
}

// checkBound is how many steps the checker may try, which takes some seconds. Correct
// histories need a hundredth of it at most.
const checkBound = 5_000_000

// checkHistory lets porcupine look for an order of the steps of one name that the
// model allows.
//
// A ticket of unknown outcome, of which only the queueing and leaving are recorded,
// rules out nothing, since it may have left as soon as it was queued. It can only
// explain a refusal. Each such ticket would double the orders to try, so these tickets
// are left out, and so are the refusals that they may explain.
func checkHistory(ops []porcupine.Operation) error {
	certain := make(map[int]bool) // tickets that were granted or refused
	for _, op := range ops {
		if st := stepOf(op); st.what == isRefused || st.what == isGranted {
			certain[st.ticket] = true
		}
	}
	explained := func(refusal porcupine.Operation) bool {
		return slices.ContainsFunc(ops, func(op porcupine.Operation) bool {
			st := stepOf(op)
			return st.what == leaves && !certain[st.ticket] && op.Call <= refusal.Return && refusal.Call <= op.Return &&
				stepOf(refusal).kind.isBlockedBy(st.kind)
		})
	}
	return checkOperations(slices.DeleteFunc(slices.Clone(ops), func(op porcupine.Operation) bool {
		st := stepOf(op)
		return !certain[st.ticket] || st.what == isRefused && explained(op)
	}))
}

// isBlockedBy reports whether a ticket ahead can be the reason to refuse one of kind k.
func (k kind) isBlockedBy(ahead kind) bool { return !k.shared || !ahead.shared || k.limit > 0 }

func stepOf(op porcupine.Operation) step {
	return op.Input.(step) //nolint:forcetypeassert // nothing else is recorded
}

func checkOperations(ops []porcupine.Operation) error {
	var steps atomic.Int64
	steps.Store(checkBound)
	switch {
	case porcupine.CheckOperations(queueSpec(&steps), ops):
		return nil
	case steps.Load() < 0:
		return &historyError{ops, fmt.Sprintf("of the orders of these %d steps, the model allows none of the %d that were tried", len(ops), checkBound)}
	default:
		return &historyError{ops, fmt.Sprintf("the model allows no order of these %d steps", len(ops))}
	}
}

// historyError is a history that the model does not allow.
type historyError struct {
	ops []porcupine.Operation
	why string
}

func (e *historyError) Error() string { return e.why + ":\n" + printHistory(e.ops) }

// draw writes the history as a page of porcupine's, with the longest orders that the
// model allows, and returns the name of the file.
func (e *historyError) draw() (file string, err error) {
	f, err := os.CreateTemp("", "locker-history-*.html")
	if err != nil {
		return "", err
	}
	defer f.Close()
	var steps atomic.Int64
	steps.Store(checkBound)
	model := queueSpec(&steps)
	_, info := porcupine.CheckOperationsVerbose(model, e.ops, 0)
	return f.Name(), porcupine.Visualize(model, info, f)
}

// printHistory returns a history as text, in the order of calls.
func printHistory(ops []porcupine.Operation) string {
	ops = slices.Clone(ops)
	slices.SortStableFunc(ops, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	var s strings.Builder
	for _, op := range ops {
		st := stepOf(op)
		end := fmt.Sprint(op.Return)
		if op.Return == unobserved {
			end = "?"
		}
		fmt.Fprintf(&s, "  [%d, %s] client %d: %s\n", op.Call, end, op.ClientId, describe(st, nil))
	}
	return s.String()
}
