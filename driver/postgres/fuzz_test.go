package postgres

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lockerproject/locker/driver"
)

// FuzzReply reads what a function of the schema may answer.
func FuzzReply(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		r, err := parseReply(text)
		if err != nil && !errors.Is(err, errReply) {
			t.Errorf("%q: %v", text, err)
		}
		lines := strings.Split(text, "\n")[1:]
		if err == nil && len(r.grants) != len(lines) {
			t.Fatalf("%q has %d grants", text, len(r.grants))
		}
		if !utf8.ValidString(text) {
			return // the client's encoding is UTF-8
		}
		for i, g := range r.grants {
			if g.id == "" || !strings.Contains(lines[i], g.id) || !strings.Contains(lines[i], strconv.FormatUint(g.token, 10)) {
				t.Errorf("%q is the grant %+v", lines[i], g)
			}
		}
	})
}

// FuzzNotice gives a process with one waiter and one lock any notification: every user of a database may send one.
// Only one with their IDs says anything of them.
func FuzzNotice(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		lost := 0
		d := &Driver{waiters: newWaiters(time.Second), notifyLoss: func(h driver.Hold, _ error) { lost++ }}
		w := d.waiters.add(driver.Request{Name: "name", ID: "waits", TTL: time.Minute})
		d.waiters.held["holds"] = struct{}{}
		d.notified(text)
		select {
		case o := <-w.outcome:
			if !strings.Contains(text, "waits") || o.err == nil && o.until.After(time.Now()) {
				t.Errorf("%q ends the wait: %+v", text, o)
			}
		default:
		}
		if lost > 0 && !strings.Contains(text, "holds") {
			t.Errorf("%q ends the lock", text)
		}
	})
}
