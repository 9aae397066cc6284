package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/queues"
)

// queueJSON is a queue as --json prints it.
type queueJSON struct {
	Name    string       `json:"name"`
	Holders int          `json:"holders"`
	Waiters int          `json:"waiters"`
	Tickets []ticketJSON `json:"tickets"` // in order, holders first
}

// ticketJSON is a ticket as --json prints it.
type ticketJSON struct {
	Token     string     `json:"token"` // a text: it has more digits than the numbers of JavaScript and jq
	Held      bool       `json:"held"`
	Owner     string     `json:"owner"`
	Note      string     `json:"note,omitempty"`
	Shared    bool       `json:"shared"`
	Limit     int        `json:"limit,omitempty"` // of a semaphore
	Since     *time.Time `json:"since,omitempty"` // of the grant or, for a waiter, of queueing
	Age       float64    `json:"age_seconds"`     // since then
	Remaining float64    `json:"remaining_seconds"`
}

func newQueueJSON(q locker.Queue, now time.Time) queueJSON {
	j := queueJSON{Name: q.Name, Tickets: ticketsJSON(q.Tickets, now)}
	j.Holders, j.Waiters, _ = queues.Tally(q)
	return j
}

func ticketsJSON(ts []locker.Ticket, now time.Time) []ticketJSON {
	js := make([]ticketJSON, len(ts))
	for i, t := range ts {
		js[i] = ticketJSON{
			Token: token(t), Held: t.Held, Owner: t.Owner, Note: t.Note, Shared: t.Shared, Limit: t.Limit,
			Age: seconds(age(t, now)), Remaining: seconds(t.Remaining),
		}
		if !t.Since.IsZero() {
			since := t.Since.UTC().Round(time.Millisecond)
			js[i].Since = &since
		}
	}
	return js
}

// seconds are those of d, to the microsecond, as a number that is printed with no more digits.
func seconds(d time.Duration) float64 { return float64(d.Round(time.Microsecond).Microseconds()) / 1e6 }

func token(t locker.Ticket) string { return strconv.FormatUint(t.Token, 10) }

// age is how long a ticket has been held, or has waited. The store's clock may be ahead
// of ours.
func age(t locker.Ticket, now time.Time) time.Duration {
	if t.Since.IsZero() {
		return 0
	}
	return max(0, now.Sub(t.Since))
}

// readQueues reads the queues whose names begin with prefix, in the order of
// their names. A name that has become free meanwhile is left out.
func readQueues(ctx context.Context, c *locker.Client, prefix string) (list []locker.Queue, err error) {
	readings, err := queues.Read(ctx, c, prefix)
	if errors.Is(err, locker.ErrUnsupported) {
		err = exit(ExitUsage, err, "locker inspect NAME: this store cannot list names, but shows the lock of one")
	}
	for _, r := range readings {
		list = append(list, r.Queue)
	}
	return list, err
}

var ticketHead = []string{"", "TOKEN", "OWNER", "KIND", "FOR", "LEASE", "NOTE"}

// ticketCells is a ticket in a row of a table for people.
func ticketCells(w io.Writer, t locker.Ticket, now time.Time) []string {
	state, lease := paint(w, yellow, "waits"), "-"
	if t.Held {
		state, lease = paint(w, green, "holds"), short(t.Remaining)
	}
	return []string{state, token(t), printable(t.Owner), kind(t), since(t, now), lease, printable(t.Note)}
}

func writeTickets(w io.Writer, ts []locker.Ticket, now time.Time) {
	rows := make([][]string, len(ts))
	for i, t := range ts {
		rows[i] = ticketCells(w, t, now)
	}
	writeTable(w, ticketHead, rows)
}

// kind is what a ticket asks for.
func kind(t locker.Ticket) string {
	switch {
	case !t.Shared:
		return "exclusive"
	case t.Limit > 0:
		return fmt.Sprintf("1 of %d", t.Limit)
	default:
		return "shared"
	}
}

// since is the age of a ticket for people.
func since(t locker.Ticket, now time.Time) string {
	if t.Since.IsZero() {
		return "-"
	}
	return short(age(t, now))
}

// short is a time of seconds to days for people, in one unit.
func short(d time.Duration) string {
	switch {
	case d < time.Second:
		return "<1s"
	case d < time.Minute:
		return fmt.Sprintf("%ds", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%dm", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", d/time.Hour)
	default:
		return fmt.Sprintf("%dd", d/(24*time.Hour))
	}
}
