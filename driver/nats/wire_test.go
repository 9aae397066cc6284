package nats

import (
	"errors"
	"strings"
	"testing"

	natsgo "github.com/nats-io/nats.go"
)

// part is a message of an answer: an entry, or a status with its code and description.
func part(status, number, before, rest string) *natsgo.Msg {
	code, description, _ := strings.Cut(status, " ")
	return &natsgo.Msg{Data: []byte("value " + number), Header: natsgo.Header{
		"Status": {code}, "Description": {description}, "Nats-Subject": {"subject " + number}, "Nats-Sequence": {number},
		"Nats-Last-Sequence": {before}, "Nats-Num-Pending": {rest},
	}}
}

// An answer is not taken for complete if one of its messages is missing, whichever it is.
func TestAnswer(t *testing.T) {
	whole := []*natsgo.Msg{part("", "5", "0", "2"), part("", "7", "5", "1"), part("", "9", "7", "0"), part("204 EOB", "", "9", "0")}
	read := func(parts []*natsgo.Msg) (found int, end bool, err error) {
		a := answer{found: make(map[string]entry)}
		for _, m := range parts {
			if end, err = a.add(m); end {
				break
			}
		}
		return len(a.found), end, err
	}
	if found, end, err := read(whole); found != 3 || !end || err != nil {
		t.Errorf("%d entries, %v, %v", found, end, err)
	}
	for missing := range whole {
		var rest []*natsgo.Msg
		for i, m := range whole {
			if i != missing {
				rest = append(rest, m)
			}
		}
		if found, end, err := read(rest); end && !errors.Is(err, errParts) || end == (missing == 3) {
			t.Errorf("without message %d: %d entries, %v, %v", missing, found, end, err)
		}
	}
	for status, want := range map[string]string{
		"404 No Results": "", "404 Message Not Found": errMoved.Error(), "503": natsgo.ErrNoResponders.Error(), "413 Too Many Results": "413",
	} {
		_, end, err := read([]*natsgo.Msg{part(status, "", "", "")})
		if !end || (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v", status, end, err)
		}
	}
	if _, _, err := read([]*natsgo.Msg{part("", "5", "0", "1"), part("204 EOB", "", "5", "1")}); err == nil || !strings.Contains(err.Error(), "left out 1") {
		t.Error(err)
	}
	if _, _, err := read([]*natsgo.Msg{part("", "x", "0", "1")}); err == nil {
		t.Error("an entry without a number is accepted")
	}
}

func TestVersions(t *testing.T) {
	for version, ok := range map[string]bool{
		"1.4.1": false, "2.9.25": false, "2.10.29": false, "2.11.0": true, "2.14.4-RC.1": true, "3.0.0": true, "unknown": true,
	} {
		if err := checkVersion(version); (err == nil) != ok {
			t.Errorf("%s: %v", version, err)
		}
	}
}
