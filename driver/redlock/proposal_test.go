package redlock

import (
	"testing"

	"github.com/lockerproject/locker/driver"
)

// A try is refused only because of tickets that are on a
// majority. Tickets on few nodes may be gone, or have other numbers, a moment later,
// and nobody may hold then: the try asks again.
func TestRefusedByWhatIsSettled(t *testing.T) {
	t.Parallel()
	block := func(ids ...string) answer { return answer{what: blocked, ahead: ids} }
	alone := func(id string) answer { return answer{what: blocked, alone: true, ahead: []string{id}} }
	hold := func(ids ...string) answer { return answer{what: holds, ahead: ids} }
	for _, c := range []struct {
		name    string
		answers []answer
		want    outcome
	}{
		{"the same two are ahead everywhere", []answer{block("a", "b"), block("a", "b"), block("a", "b"), block("a", "b"), block("a", "b")}, notNow},
		{"each on another majority", []answer{block("a", "b"), hold("a"), hold("b"), block("a", "b"), block("a", "b")}, notNow},
		{"two that a bare majority has", []answer{block("a", "b"), block("a", "b"), block("a", "b"), hold(), hold()}, notNow},
		{"another library holds", []answer{block(), block(), block(), hold(), hold()}, notNow},
		{"an exclusive one is ahead", []answer{alone("x"), alone("x"), alone("x"), hold(), hold()}, notNow},
		{"exclusive ones are on few nodes", []answer{alone("x"), alone("x"), alone("y"), hold(), hold()}, split},
		{"an exclusive one is on most, and the same two are on few", []answer{alone("x"), alone("x"), alone("x"), block("a", "b"), block("a", "b")}, notNow},
		{"all on few nodes", []answer{block("a", "b"), block("a", "b"), block("c", "d"), hold(), hold()}, split},
		{"one on most, the others on few", []answer{block("a", "b"), block("a", "c"), block("a", "d"), hold(), hold("a")}, split},
		{"it holds on a majority, and others on few", []answer{hold("a"), hold("b"), hold("c"), block("d", "e"), block("d", "e")}, split},
		{"it holds on a majority, and one is ahead", []answer{hold("a"), hold("a"), hold("a"), hold("a"), hold("a")}, granted},
	} {
		d := &Driver{nodes: make([]*node, 5), quorum: 3}
		p := d.newProposal(&ticket{r: driver.Request{Shared: true, Limit: 2}}, 1, orLeave)
		p.answers, p.errs = c.answers, make([]error, 5)
		if got := p.judge(0); got != c.want {
			t.Errorf("%s: outcome %d, want %d", c.name, got, c.want)
		}
	}
}
