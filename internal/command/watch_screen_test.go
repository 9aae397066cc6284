package command

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker"
)

// An outage leaves the last picture, and says since when and why; what does not fit the terminal is counted.
func TestScreen(t *testing.T) {
	noon := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	var queues []locker.Queue
	for i := range 30 {
		queues = append(queues, locker.Queue{Name: fmt.Sprintf("q%02d", i), Tickets: []locker.Ticket{
			{Token: 1, Owner: "web", Held: true, Since: noon.Add(-time.Minute), Remaining: 20 * time.Second},
			{Token: 2, Owner: strings.Repeat("x", 100), Since: noon.Add(time.Duration(-i) * time.Second)},
		}})
	}
	var out bytes.Buffer
	s := &screen{app: &app{Streams: Streams{Out: &out}, out: &printed{Writer: &out}}, store: "redis://host", prefix: "q", by: orders["longest"]}
	for _, c := range []struct {
		l    reading
		want []string
		rows int
	}{
		{reading{at: noon}, []string{"locker watch redis://host q…", "12:00:00  0 locks, 0 holders, 0 waiters", "nobody holds or waits for a lock whose name begins with q"}, 4},
		{reading{at: noon, queues: queues}, []string{"30 locks, 30 holders, 30 waiters", "q29   web     1m    20s    1        29s\n\x1b[Kq28 ", "… 12 more"}, 23},
		{reading{at: noon.Add(time.Second), err: errors.New("gone\x1b[2J")}, []string{"12:00:00  30 locks", `no answer for <1s: "gone\x1b[2J"`, "q29 "}, 23},
		{reading{at: noon.Add(9 * time.Second), err: errors.New("gone")}, []string{"no answer for 8s: gone"}, 23},
		{reading{at: noon.Add(10 * time.Second)}, []string{"12:00:10  0 locks"}, 4},
	} {
		out.Reset()
		s.show(c.l)
		for _, want := range c.want {
			if !strings.Contains(out.String(), want) {
				t.Errorf("want %q in %q", want, out.String())
			}
		}
		if rows := strings.Count(out.String(), "\n"); rows != c.rows {
			t.Errorf("%d lines, want %d: %q", rows, c.rows, out.String())
		}
	}
}
