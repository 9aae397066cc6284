package mysql

import (
	"strings"
	"testing"
	"time"
)

// FuzzStatement: no name, ID, owner or note changes what a statement does.
func FuzzStatement(f *testing.F) {
	w, err := newWire(current, "locker")
	if err != nil {
		f.Fatal(err)
	}
	plain := len(write(nil, ""))
	valuesWith := func(name, id, owner, note string) values { // all that statements have
		return valuesOf(name, id).with(values{
			"owner": owner, "note": note, "raised": "\xfe" + id, "after": name, "shared": true, "mark": false, "permits": 0, "ttl": time.Second,
			"token": uint64(1), "process": int64(1), "last": int64(2), "connection": int64(3), "start": uint64(4), "key": 5, "most": 6,
			"deadline": func() int64 { return 0 }, "seqs": []uint64{0}, "numbers": []int64{1},
			"ids": []string{id}, "names": []string{name}, "entries": []string{name},
		})
	}
	f.Fuzz(func(t *testing.T, name, id, owner, note string) {
		for statement := range w.statements {
			with := w.render(statement, valuesWith(name, id, owner, note))
			without := w.render(statement, valuesWith("", "", "", ""))
			if strings.Count(with, "'") != strings.Count(without, "'") || strings.Count(with, ";") != strings.Count(without, ";") {
				t.Errorf("%s: %s", statement, with)
			}
		}
		if got := write(nil, name); len(got) != plain+2*len(name) || strings.Trim(string(got[2:len(got)-1]), "0123456789abcdef") != "" {
			t.Errorf("%q is written %s", name, got)
		}
	})
}
