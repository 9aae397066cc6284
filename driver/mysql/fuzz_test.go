package mysql

import (
	"strings"
	"testing"

	"github.com/lockerproject/locker/driver"
)

// FuzzJudge judges a ticket by rows that another program may have written: a byte each, for the kind and the limit. What
// is judged as granted, the rule grants.
func FuzzJudge(f *testing.F) {
	f.Fuzz(func(t *testing.T, kinds []byte, shared bool, limit int8) {
		var rows []row
		var queue []driver.Ticket
		for i, k := range kinds {
			r := row{token: uint64(i+1) * turns, shared: k&1 != 0, permits: int(int8(k)) >> 1}
			rows = append(rows, r)
			queue = append(queue, driver.Ticket{Shared: r.shared, Limit: r.permits})
		}
		own := row{token: uint64(len(rows)+1) * turns, shared: shared, permits: int(limit)}
		c := candidate{token: own.token, shared: shared, permits: int(limit)}
		rows, queue = append(rows, own), append(queue, driver.Ticket{Shared: shared, Limit: int(limit)})
		most := c.enough()
		if most < 1 {
			t.Fatalf("%d rows are enough", most)
		}
		if c.judge(rows[:min(most, len(rows))], most) == granted && !driver.Grantable(queue, len(queue)-1) {
			t.Errorf("%v is granted behind %v", c, queue)
		}
	})
}

// FuzzStatement: no name, ID, owner or note changes what a statement does.
func FuzzStatement(f *testing.F) {
	w, err := newWire(current, "locker")
	if err != nil {
		f.Fatal(err)
	}
	plain := len(literal(nil, ""))
	f.Fuzz(func(t *testing.T, name, id, owner, note string) {
		for statement := range w.statements {
			with := w.render(statement, values{name: name, id: id, owner: owner, note: note})
			without := w.render(statement, values{})
			if strings.Count(with, "'") != strings.Count(without, "'") || strings.Count(with, ";") != strings.Count(without, ";") {
				t.Errorf("%s: %s", statement, with)
			}
		}
		if got := literal(nil, name); len(got) != plain+2*len(name) || strings.Trim(string(got[2:len(got)-1]), "0123456789abcdef") != "" {
			t.Errorf("%q is written %s", name, got)
		}
	})
}
