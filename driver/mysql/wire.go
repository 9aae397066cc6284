package mysql

import (
	"cmp"
	_ "embed"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

//go:embed statements.sql
var statementsText string

// slots is how many rows order the tokens of all names. All clients of a database
// have to agree on it, and on slotOf.
const slots = 256

// slotOf is the slot of a name: FNV-1a, 64 bits.
func slotOf(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // never fails, by its documentation
	return h.Sum64() % slots
}

// thisServer identifies the start of a server: its server_id, and when it was started,
// in seconds, which UUID_SHORT has in the bits above the lowest 24. It counts up into them: every 2^24 calls are a start, too.
const thisServer = "(@@server_id << 32) | ((UUID_SHORT() >> 24) & 4294967295)"

// executionTime is the time at which it is evaluated: that of the statement, plus what has passed since. SYSDATE() is in
// the session's time zone, and so is NOW(): a difference of half hours is a change to or from summer time.
const executionTime = "(UTC_TIMESTAMP(6) + INTERVAL MOD(TIMESTAMPDIFF(MICROSECOND, NOW(6), SYSDATE(6)) + 7800000000, 1800000000)" +
	" - 600000000 MICROSECOND)"

// autocommitOn is true where autocommit is on, and out of range where it is off: 2^64-1, and one more.
const autocommitOn = "18446744073709551615 + (1 - @@autocommit)"

// Assignments in procedures: the anchor has no ticket any more, but stays; a ticket that waits becomes a holder, and the
// anchor if it is exclusive. Its lease begins after the heartbeat that was read, and does not outlive the row of its process.
const (
	vacated = "name = NULL, id = NULL, held = 0, provisional = 0, queued = 1, guards = 0, expires_at = NULL, owner = x'', note = x''"
	granted = "entry = IF(shared, entry, p_name), queued = NOT shared, held = 1, provisional = 1, since = UTC_TIMESTAMP(6), heartbeat = v_heartbeat, " +
		"expires_at = LEAST(UTC_TIMESTAMP(6) + INTERVAL ttl MICROSECOND, v_alive)"
)

// wire has the statements for one set of tables.
type wire struct {
	edition edition
	prefix  string

	tickets, slots, processes, tx, queues string // quoted

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
		tickets: quoted("tickets"), slots: quoted("slots"), processes: quoted("processes"), tx: quoted("tx"), queues: quoted("queues"),
		statements: make(map[string]statement),
	}
	for _, block := range append(strings.Split(statementsText, "\n\n")[1:], strings.Split(proceduresText, "\n\n")...) {
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(block), "-- "), ":")
		w.statements[name] = parse(w.tables(withoutComments(block)))
	}
	return w, nil
}

func withoutComments(block string) string {
	var text []string
	for line := range strings.SplitSeq(strings.TrimSpace(block), "\n") {
		if !strings.HasPrefix(line, "--") {
			text = append(text, strings.TrimSpace(line))
		}
	}
	return strings.Join(text, " ")
}

// tables fills the holes that are the same in all requests.
func (w *wire) tables(text string) string {
	text = strings.NewReplacer(
		"{edition}", "NOT EXISTS (SELECT s.{column} FROM {slots} AS s WHERE s.{column} > 65535)",
		"{vacated}", vacated, "{granted}", granted, "{here}", "("+thisServer+") = {start}", "{now}", executionTime,
	).Replace(text)
	text = strings.ReplaceAll(text, "{server}", thisServer)
	for _, name := range procedures {
		text = strings.ReplaceAll(text, "{"+name+"}", "`"+w.prefix+strings.TrimPrefix(name, "call")+"_"+w.edition.column()+"`") // 64 bytes at most
	}
	return strings.NewReplacer("{tickets}", w.tickets, "{slots}", w.slots, "{processes}", w.processes, "{tx}", w.tx, "{queues}", w.queues,
		"{column}", "`"+w.edition.column()+"`", "{table}", "'"+w.prefix+"_tickets'").Replace(text)
}

// A statement is text with holes: parts[0] holes[0] parts[1] …
type statement struct {
	parts []string
	holes []hole
}

func parse(text string) (s statement) {
	for {
		before, rest, ok := strings.Cut(text, "{")
		s.parts = append(s.parts, before)
		if !ok {
			return s
		}
		name, after, _ := strings.Cut(rest, "}")
		fill, ok := holes[name]
		if !ok {
			panic("mysql: no value " + name)
		}
		s.holes = append(s.holes, fill)
		text = after
	}
}

func (w *wire) render(name string, v values) string {
	s, ok := w.statements[name]
	if !ok {
		panic("mysql: no statement " + name)
	}
	b := make([]byte, 0, 1024)
	for i, fill := range s.holes {
		b = fill(append(b, s.parts[i]...), &v)
	}
	return string(append(b, s.parts[len(s.holes)]...))
}

// values fill the holes of a statement.
type values struct {
	driver.Request
	process, last, connection int64

	mark       bool
	left       time.Duration // in the place of the TTL
	token      uint64
	entries    []string
	ids, names []string
	numbers    []int64
	seqs       []uint64
	entry      string // of a ticket; "": by its ID
	key, most  int
	until      func() int64 // by the server's clock, in microseconds; it is called when the statement is about to be sent
	after      string
	start      uint64 // of the server that the statement is meant for
}

func valuesOf(name, id string) values { return values{Request: driver.Request{Name: name, ID: id}} }

// entryOf is the entry of a ticket that is no anchor.
func entryOf(id string) string { return "\xff" + id }

// A hole appends a value.
type hole func(b []byte, v *values) []byte

var holes = map[string]hole{
	"name": func(b []byte, v *values) []byte { return literal(b, v.Name) },
	"entry": func(b []byte, v *values) []byte {
		return literal(b, cmp.Or(v.entry, entryOf(v.ID)))
	},
	"raised":  func(b []byte, v *values) []byte { return literal(b, "\xfe"+v.ID) },
	"id":      func(b []byte, v *values) []byte { return literal(b, v.ID) },
	"owner":   func(b []byte, v *values) []byte { return literal(b, v.Owner) },
	"note":    func(b []byte, v *values) []byte { return literal(b, v.Note) },
	"shared":  func(b []byte, v *values) []byte { return bit(b, v.Shared) },
	"mark":    func(b []byte, v *values) []byte { return bit(b, v.mark) },
	"permits": func(b []byte, v *values) []byte { return strconv.AppendInt(b, int64(v.Limit), 10) },
	"slot":    func(b []byte, v *values) []byte { return strconv.AppendUint(b, slotOf(v.Name), 10) },
	"ttl": func(b []byte, v *values) []byte {
		return strconv.AppendInt(b, sqlqueue.Micros(cmp.Or(v.TTL, v.left)), 10)
	},
	"token":      func(b []byte, v *values) []byte { return number(b, v.token) },
	"seqs":       func(b []byte, v *values) []byte { return list(b, v.seqs, number) },
	"ids":        func(b []byte, v *values) []byte { return list(b, v.ids, literal) },
	"names":      func(b []byte, v *values) []byte { return list(b, v.names, literal) },
	"entries":    func(b []byte, v *values) []byte { return list(b, v.entries, literal) },
	"numbers":    func(b []byte, v *values) []byte { return list(b, v.numbers, integer) },
	"process":    func(b []byte, v *values) []byte { return integer(b, v.process) },
	"last":       func(b []byte, v *values) []byte { return integer(b, v.last) },
	"connection": func(b []byte, v *values) []byte { return integer(b, v.connection) },
	"key":        func(b []byte, v *values) []byte { return integer(b, int64(v.key)) },
	"most":       func(b []byte, v *values) []byte { return integer(b, int64(v.most)) },
	"after":      func(b []byte, v *values) []byte { return literal(b, v.after) },
	"start":      func(b []byte, v *values) []byte { return number(b, v.start) },
	"deadline": func(b []byte, v *values) []byte {
		return time.UnixMicro(v.until()).UTC().AppendFormat(b, "TIMESTAMP'2006-01-02 15:04:05.000000'")
	},
	"autocommit": func(b []byte, _ *values) []byte { return append(b, autocommitOn...) },
}

// literal appends bytes in a form that every server reads alike.
func literal(b []byte, s string) []byte {
	b = append(b, "x'"...)
	b = hex.AppendEncode(b, []byte(s))
	return append(b, '\'')
}

func number(b []byte, n uint64) []byte { return strconv.AppendUint(b, n, 10) }

func integer(b []byte, n int64) []byte { return strconv.AppendInt(b, n, 10) }

func bit(b []byte, set bool) []byte {
	if set {
		return append(b, '1')
	}
	return append(b, '0')
}

func list[T any](b []byte, all []T, one func([]byte, T) []byte) []byte {
	if len(all) == 0 {
		return append(b, "NULL"...)
	}
	for i, x := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = one(b, x)
	}
	return b
}
