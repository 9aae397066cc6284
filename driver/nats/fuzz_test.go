package nats

import (
	"strings"
	"testing"

	natsgo "github.com/nats-io/nats.go"
)

// FuzzAnswer reads messages, one a line, whose headers are separated by bars: status, description, subject, number,
// number before, entries left. An answer that ends without an error has all its entries.
func FuzzAnswer(f *testing.F) {
	f.Fuzz(func(t *testing.T, messages string) {
		a := answer{found: make(map[string]entry)}
		entries, last := 0, "0"
		for line := range strings.SplitSeq(messages, "\n") {
			part := strings.Split(line+"|||||", "|")
			end, err := a.add(&natsgo.Msg{Data: []byte(line), Header: natsgo.Header{
				"Status": {part[0]}, "Description": {part[1]}, "Nats-Subject": {part[2]}, "Nats-Sequence": {part[3]},
				"Nats-Last-Sequence": {part[4]}, "Nats-Num-Pending": {part[5]},
			}})
			if err != nil && !end {
				t.Fatalf("%q: goes on after %v", line, err)
			}
			if end {
				complete := part[0] == "204" && part[4] == last && part[5] == "0" || part[0] == "404" && part[1] == "No Results"
				if err == nil && !complete {
					t.Errorf("%q ends an answer of %d entries", line, entries)
				}
				return
			}
			entries++
			last = strings.TrimLeft(part[3], "0")
			if last == "" {
				last = "0"
			}
			if len(a.found) > entries || part[0] != "" || string(a.found[part[2]].value) != line {
				t.Errorf("%q is taken for an entry: %v", line, a.found)
			}
		}
	})
}

func FuzzVersion(f *testing.F) {
	f.Fuzz(func(_ *testing.T, version string) { _ = checkVersion(version) })
}
