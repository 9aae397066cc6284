package mysql

import (
	_ "embed"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlline"
)

//go:embed statements.sql
var statementsText string

// slots is how many rows order the numbers of all names. Every client of one
// database has to agree on it, and on slotOf.
const slots = 256

// slotOf is the slot of a name: FNV-1a, 64 bits.
func slotOf(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails, by its documentation
	return h.Sum64() % slots
}

// A number is that of a row and its turn in it.
const turns = 1 << 20

func seqOf(token uint64) uint64  { return token / turns }
func turnOf(token uint64) uint64 { return token % turns }

// A statement is text with holes: parts[0] hole[0] parts[1] …
type statement struct {
	parts []string
	holes []string
}

// wire has the statements for one set of tables.
type wire struct {
	edition edition
	prefix  string

	tickets, slots, tx, epochs, queues string // quoted

	statements map[string]statement
}

var goodPrefix = regexp.MustCompile(`^[A-Za-z0-9_$-]{1,40}$`)

func newWire(e edition, prefix string) (*wire, error) {
	if !goodPrefix.MatchString(prefix) {
		return nil, fmt.Errorf("prefix %q: want 1 to 40 letters, digits, _, $ or -", prefix)
	}
	quoted := func(name string) string { return "`" + prefix + "_" + name + "`" }
	w := &wire{
		edition: e, prefix: prefix,
		tickets: quoted("tickets"), slots: quoted("slots"), tx: quoted("tx"), epochs: quoted("epochs"), queues: quoted("queues"),
		statements: make(map[string]statement),
	}
	for _, block := range strings.Split(statementsText, "\n\n")[1:] {
		block = strings.TrimPrefix(strings.TrimSpace(block), "-- ")
		name, _, _ := strings.Cut(block, ":")
		w.statements[name] = cut(w.tables(withoutComments(block)))
	}
	return w, nil
}

func withoutComments(block string) string {
	lines := strings.Split(block, "\n")[1:] // the first is a comment's
	kept := lines[:0]
	for _, l := range lines {
		if !strings.HasPrefix(l, "--") {
			kept = append(kept, strings.TrimSpace(l))
		}
	}
	return strings.Join(kept, " ")
}

// tables puts in the names of tables and columns.
func (w *wire) tables(s string) string {
	s = strings.ReplaceAll(s, "{ours}", "NOT EXISTS (SELECT s.{column} FROM {slots} AS s WHERE s.{column} > 65535)")
	return strings.NewReplacer("{tickets}", w.tickets, "{slots}", w.slots, "{tx}", w.tx, "{epochs}", w.epochs, "{queues}", w.queues,
		"{column}", "`"+w.edition.column()+"`", "{table}", "'"+w.prefix+"_tickets'").Replace(s)
}

func cut(text string) (s statement) {
	for {
		before, rest, ok := strings.Cut(text, "{")
		s.parts = append(s.parts, before)
		if !ok {
			return s
		}
		hole, after, _ := strings.Cut(rest, "}")
		s.holes = append(s.holes, hole)
		text = after
	}
}

// values fill the holes of a statement.
type values struct {
	name, id    string
	owner, note string
	shared      bool
	permits     int
	knock       bool
	ttl, life   time.Duration
	unused      time.Duration
	token       uint64
	tokens      []uint64
	ids, names  []string
	key, most   int
	deadline    time.Time // by the database's clock
	until       time.Time // the deadline by this process's clock
	server      uint64    // the start of the server that the statement is meant for
	floor       uint64
	inTx        bool // it is sent in a transaction that was begun
}

func valuesOfHold(h driver.Hold) values { return values{name: h.Name, id: h.ID, token: h.Token} }

// gateIdle is how long a gate that nobody stands at is left alone before the
// sweep looks at it.
const gateIdle = 10 * time.Second

// guards is what a Guard adds to the knocks of a ticket.
const guards = 1 << 32

// thisServer is the start of a server: its server_id, and when it was started, in seconds. UUID_SHORT
// has the latter in the bits above the lowest 24.
const thisServer = "(@@server_id << 32) | ((UUID_SHORT() >> 24) & 4294967295)"

// alone is true where autocommit is on, and out of range where it is off: 2^64-1, and one more.
const alone = "18446744073709551615 + (1 - @@autocommit)"

func (w *wire) render(name string, v values) string {
	s, ok := w.statements[name]
	if !ok {
		panic("mysql: no statement " + name)
	}
	b := make([]byte, 0, 1024)
	for i, hole := range s.holes {
		b = append(b, s.parts[i]...)
		b = v.fill(b, hole)
	}
	return string(append(b, s.parts[len(s.holes)]...))
}

func (v *values) fill(b []byte, hole string) []byte {
	switch hole {
	case "name":
		return literal(b, v.name)
	case "seat":
		return literal(b, "\xff"+v.id)
	case "id":
		return literal(b, v.id)
	case "owner":
		return literal(b, v.owner)
	case "note":
		return literal(b, v.note)
	case "slot":
		return strconv.AppendUint(b, slotOf(v.name), 10)
	case "shared":
		if v.shared {
			return append(b, '1')
		}
		return append(b, '0')
	case "permits":
		return strconv.AppendInt(b, int64(v.permits), 10)
	case "ttl":
		return micros(b, v.ttl)
	case "life":
		return micros(b, v.life)
	case "idle":
		return micros(b, gateIdle)
	case "seq":
		return strconv.AppendUint(b, seqOf(v.token), 10)
	case "next":
		return strconv.AppendUint(b, turnOf(v.token)+1, 10)
	case "token":
		return strconv.AppendUint(b, v.token, 10)
	case "seqs":
		return list(b, v.tokens, func(b []byte, t uint64) []byte { return strconv.AppendUint(b, seqOf(t), 10) })
	case "knock":
		if v.knock {
			return append(b, '1')
		}
		return append(b, '0')
	case "guarded":
		return strconv.AppendInt(b, guards, 10)
	case "alone":
		if v.inTx {
			return append(b, '1')
		}
		return append(b, alone...)
	case "server":
		return append(b, thisServer...)
	case "here":
		b = append(b, "("+thisServer+") = "...)
		return strconv.AppendUint(b, v.server, 10)
	case "floor":
		return strconv.AppendUint(b, v.floor, 10)
	case "room":
		return strconv.AppendInt(b, v.room(), 10)
	case "unused":
		return micros(b, v.unused)
	case "ids":
		return list(b, v.ids, literal)
	case "names":
		return list(b, v.names, literal)
	case "deadline":
		return v.deadline.UTC().AppendFormat(b, "TIMESTAMP'2006-01-02 15:04:05.000000'")
	case "key":
		return strconv.AppendInt(b, int64(v.key), 10)
	case "most":
		return strconv.AppendInt(b, int64(v.most), 10)
	}
	panic("mysql: no value " + hole)
}

// room is how many tickets there may be at once, this one among them.
func (v *values) room() int64 {
	switch {
	case !v.shared:
		return 1
	case v.permits > 0:
		return int64(v.permits)
	}
	return 1 << 40
}

// literal appends bytes as no server can misread them.
func literal(b []byte, s string) []byte {
	b = append(b, "x'"...)
	b = hex.AppendEncode(b, []byte(s))
	return append(b, '\'')
}

func micros(b []byte, d time.Duration) []byte { return strconv.AppendInt(b, sqlline.Micros(d), 10) }

func list[T any](b []byte, all []T, one func([]byte, T) []byte) []byte {
	for i, x := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = one(b, x)
	}
	return b
}
