package conformance

import (
	"strings"
	"testing"

	"github.com/anishathalye/porcupine"
)

// record is a history that is written step by step.
type record struct {
	ops []porcupine.Operation
	now int64
}

func (r *record) happened(what stepKind, ticket int, k kind, from, to int64) {
	var token uint64
	if what == enqueues && to != unobserved {
		token = uint64(ticket) //nolint:gosec // not negative
	}
	r.ops = append(r.ops, porcupine.Operation{Input: step{what, ticket, token, k}, Call: from, Return: to})
}

// unknown adds a ticket of unknown outcome.
func (r *record) unknown(ticket int, k kind) {
	r.now++
	r.happened(enqueues, ticket, k, r.now, unobserved)
	r.happened(leaves, ticket, k, r.now, unobserved)
}

// cycle adds a ticket that is queued, granted, and leaves, one after the other; it returns when it was granted.
func (r *record) cycle(ticket int, k kind) (from, to int64) {
	from = r.now + 1
	for _, what := range []stepKind{enqueues, isGranted, leaves} {
		r.happened(what, ticket, k, r.now+1, r.now+2)
		r.now += 2
	}
	return from + 3, r.now - 1
}

func (r *record) refused(ticket int, k kind) {
	r.happened(isRefused, ticket, k, r.now+1, r.now+2)
	r.now += 2
}

var reader = kind{shared: true}

// contended adds tickets that are queued one after the other, and granted in that order. Each grant is recorded
// as any time between the request and the end.
func (r *record) contended(first, n int, k kind) {
	asked := make([]int64, n)
	for i := range n {
		asked[i] = r.now + 1
		r.happened(enqueues, first+i, k, r.now+1, r.now+2)
		r.now += 2
	}
	for i := range n {
		r.happened(isGranted, first+i, k, asked[i], r.now+1)
		r.happened(leaves, first+i, k, r.now+2, r.now+3)
		r.now += 3
	}
}

// Tickets of unknown outcome explain refusals.
func TestUnknownOutcomes(t *testing.T) {
	var r record
	from := r.now + 1
	for i := range 15 {
		r.unknown(1000+i, exclusively)
		r.unknown(2000+i, reader)
	}
	r.refused(3000, reader)
	r.happened(enqueues, 1, reader, from, r.now+1)
	r.happened(isGranted, 1, reader, from, r.now+1)
	r.happened(leaves, 1, reader, r.now+1, unobserved)
	r.now++
	for i := range 10 {
		r.contended(10*i+2, 8, exclusively)
		r.unknown(4000+i, exclusively)
		r.unknown(5000+i, reader)
		r.refused(6000+i, reader)
	}
	if err := checkHistory(r.ops); err != nil {
		t.Error(err)
	}
}

// A history that nothing explains fails.
func TestUnexplained(t *testing.T) {
	for what, write := range map[string]func(r *record){
		"a refusal of a free name":                     func(r *record) { r.refused(2, exclusively) },
		"a refusal after a ticket of known outcome":    func(r *record) { r.cycle(1, exclusively); r.refused(2, exclusively) },
		"a refusal before a ticket of unknown outcome": func(r *record) { r.refused(2, exclusively); r.unknown(3, exclusively) },
		"a reader's refusal beside a reader":           func(r *record) { r.unknown(1, reader); r.refused(2, reader) },
		"two writers at once": func(r *record) {
			r.contended(1, 2, exclusively)
			r.ops[4].Return = r.ops[3].Call - 1 // the second was granted before the first left
		},
		"a grant, and the same token for two tickets after": func(r *record) { r.cycle(2, exclusively); r.cycle(2, exclusively) },
	} {
		var r record
		write(&r)
		if err := checkHistory(r.ops); err == nil || !strings.Contains(err.Error(), "allows no order") {
			t.Errorf("%s: %v", what, err)
		}
	}
}
