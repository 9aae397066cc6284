package casqueue

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// FuzzDocument puts any content where the document of a queue is. Nobody is granted past a ticket in it, and an error
// names the key. A document that is read is the same after it was written.
func FuzzDocument(f *testing.F) {
	f.Fuzz(func(t *testing.T, content []byte) {
		d, err := decode(content)
		if err == nil && len(content) > 0 && !bytes.Contains(bytes.ToLower(content), []byte(`"v"`)) {
			t.Errorf("%q says no version", content)
		}
		if err == nil {
			checkWritten(t, d)
		}
		bubble(t, func(b *bed) {
			e, p := b.open()
			if err := p.Set(b.Context(), e.key("a"), content, time.Hour); err != nil {
				b.Fatal(err)
			}
			g, acquired := e.Acquire(b.Context(), request("a", "id of this process"))
			_, inspected := e.Inspect(b.Context(), "a")
			switch {
			case err != nil:
				for _, got := range []error{acquired, inspected} {
					if got == nil || !strings.Contains(got.Error(), e.key("a")) || driver.IsUnavailable(got) {
						b.Errorf("%q: %v, want an error that names the key", content, got)
					}
				}
			case inspected != nil:
				b.Errorf("%q: inspect: %v", content, inspected)
			case acquired == nil && (!admits(d) || g.Token <= before(d)):
				b.Errorf("%q: granted with token %d", content, g.Token)
			case acquired != nil && !errors.Is(acquired, driver.ErrNotAcquired) && !errors.Is(acquired, driver.ErrUnsupported):
				b.Errorf("%q: acquire: %v", content, acquired)
			}
		})
	})
}

// checkWritten checks that a document is the same after it was written, and that what follows from it makes sense.
func checkWritten(t *testing.T, d *document) {
	t.Helper()
	once, err := d.encode()
	if err != nil {
		t.Fatal(err)
	}
	again, err := decode(once)
	if err != nil {
		t.Fatalf("written as %q, which is refused: %v", once, err)
	}
	if twice, _ := again.encode(); !bytes.Equal(once, twice) {
		t.Errorf("written as %q, and then as %q", once, twice)
	}
	if k := d.keep(); k < keepEmpty {
		t.Errorf("kept for %v", k)
	}
	for _, q := range d.Queues {
		for i := range q.Tickets {
			if r := &q.Tickets[i]; patience(r.life()) <= 0 || r.Token > q.Last || i > 0 && r.Token <= q.Tickets[i-1].Token {
				t.Errorf("ticket %+v of a queue whose last number is %d", r, q.Last)
			}
		}
	}
}

// before returns the greatest number before that of the request's ticket.
func before(d *document) uint64 {
	q := d.find("a")
	if i := q.index("id of this process"); i >= 0 {
		return q.Tickets[i].Token - 1
	}
	return q.Last
}

// admits reports whether the request may be granted beside a document: no queue of its name has a ticket, or its own is
// the first.
func admits(d *document) bool {
	for _, q := range d.Queues {
		if q.Name == "a" && len(q.Tickets) > 0 && q.Tickets[0].ID != "id of this process" {
			return false
		}
	}
	return true
}
