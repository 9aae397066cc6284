package mysql

import (
	"strings"
	"testing"

	"github.com/lockerproject/locker/driver"
)

// FuzzStatement: no name, ID, owner or note changes what a statement does.
func FuzzStatement(f *testing.F) {
	w, err := newWire(current, "locker")
	if err != nil {
		f.Fatal(err)
	}
	until := func() int64 { return 0 }
	plain := len(literal(nil, ""))
	f.Fuzz(func(t *testing.T, name, id, owner, note string) {
		for statement := range w.statements {
			with := w.render(statement, values{Request: driver.Request{Name: name, ID: id, Owner: owner, Note: note}, until: until})
			without := w.render(statement, values{until: until})
			if strings.Count(with, "'") != strings.Count(without, "'") || strings.Count(with, ";") != strings.Count(without, ";") {
				t.Errorf("%s: %s", statement, with)
			}
		}
		if got := literal(nil, name); len(got) != plain+2*len(name) || strings.Trim(string(got[2:len(got)-1]), "0123456789abcdef") != "" {
			t.Errorf("%q is written %s", name, got)
		}
	})
}
