package mysql

import (
	_ "embed"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"maps"
	"regexp"
	"strconv"
	"strings"
	"time"

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

// autocommitOn is true where autocommit is on, and out of range where it is off: 2^64-1, and one more. So it is on MariaDB where
// the session is in a transaction; MySQL, which has no such variable, reads a comment.
const autocommitOn = "18446744073709551615 + (1 - @@autocommit /*M! + @@in_transaction */)"

// readOnlyServer is true where read_only or innodb_read_only is on; the first is a number or, since MariaDB 12, a text.
const readOnlyServer = "(@@innodb_read_only OR CONCAT(@@global.read_only) NOT IN ('0', 'OFF'))"

// onPrimary is true on a server that takes writes, and otherwise two rows, of which there may be one. UNION ALL makes no table for them.
const onPrimary = "(SELECT 1 UNION ALL SELECT 1 FROM DUAL WHERE " + readOnlyServer + ")"

// Assignments in procedures: the anchor has no ticket any more, but stays; a ticket that waits becomes a holder, and the
// anchor if it is exclusive. Its lease begins after the heartbeat that was read, and does not outlive the row of its process.
const (
	vacated = "name = NULL, id = NULL, held = 0, provisional = 0, queued = 1, guards = 0, expires_at = NULL, owner = x'', note = x''"
	granted = "entry = IF(shared, entry, p_name), queued = NOT shared, held = 1, provisional = 1, since = UTC_TIMESTAMP(6), heartbeat = v_heartbeat, " +
		"expires_at = LEAST(UTC_TIMESTAMP(6) + INTERVAL ttl MICROSECOND, v_alive)"
)

// wire has the statements for one set of tables.
type wire struct {
	edition sqlqueue.Edition
	prefix  string

	tickets, slots, processes, tx, queues string // quoted

	statements map[string]string // by their names
}

var goodPrefix = regexp.MustCompile(`^[A-Za-z0-9_$-]{1,40}$`)

func newWire(e sqlqueue.Edition, prefix string) (*wire, error) {
	if !goodPrefix.MatchString(prefix) {
		return nil, fmt.Errorf("prefix %q: want 1 to 40 letters, digits, _, $ or -", prefix)
	}
	quoted := func(name string) string { return "`" + prefix + "_" + name + "`" }
	w := &wire{
		edition: e, prefix: prefix,
		tickets: quoted("tickets"), slots: quoted("slots"), processes: quoted("processes"), tx: quoted("tx"), queues: quoted("queues"),
		statements: make(map[string]string),
	}
	for _, block := range append(strings.Split(statementsText, "\n\n")[1:], strings.Split(proceduresText, "\n\n")...) {
		name, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(block), "-- "), ":")
		w.statements[name] = w.tables(withoutComments(block))
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
		"{vacated}", vacated, "{granted}", granted, "{here}", "("+thisServer+") = {start}", "{now}", executionTime, "{autocommit}", autocommitOn,
		"{primary}", onPrimary, "{readonly}", readOnlyServer,
	).Replace(text)
	text = strings.ReplaceAll(text, "{server}", thisServer)
	for _, name := range procedures {
		text = strings.ReplaceAll(text, "{"+name+"}", "`"+w.prefix+strings.TrimPrefix(name, "call")+"_"+column(w.edition)+"`") // 64 bytes at most
	}
	return strings.NewReplacer("{tickets}", w.tickets, "{slots}", w.slots, "{processes}", w.processes, "{tx}", w.tx, "{queues}", w.queues,
		"{column}", "`"+column(w.edition)+"`", "{table}", "'"+w.prefix+"_tickets'").Replace(text)
}

// render returns a statement with values in its holes.
func (w *wire) render(name string, v values) string {
	rest, ok := w.statements[name]
	if !ok {
		panic("mysql: no statement " + name)
	}
	b := make([]byte, 0, 1024)
	for {
		text, after, more := strings.Cut(rest, "{")
		b = append(b, text...)
		if !more {
			return string(b)
		}
		hole, after, _ := strings.Cut(after, "}")
		value, ok := v[hole]
		if !ok {
			panic("mysql: no value " + hole)
		}
		b, rest = write(b, value), after
	}
}

// values fill the holes of a statement, by their names.
type values map[string]any

// valuesOf has the values of a name and, unless it is empty, of the ID of a ticket.
func valuesOf(name, id string) values {
	return values{"name": name, "slot": slotOf(name), "id": id, "entry": entryOf(id)}
}

// with adds values.
func (v values) with(more values) values {
	maps.Copy(v, more)
	return v
}

// entryOf is the entry of a ticket that is no anchor.
func entryOf(id string) string { return "\xff" + id }

// write appends a value in a form that every server reads alike.
func write(b []byte, value any) []byte {
	switch v := value.(type) {
	case string:
		return append(hex.AppendEncode(append(b, "x'"...), []byte(v)), '\'')
	case bool:
		if v {
			return append(b, '1')
		}
		return append(b, '0')
	case time.Duration:
		return strconv.AppendInt(b, sqlqueue.Micros(v), 10)
	case func() int64: // a time, which is asked for when the statement is about to be sent
		return time.UnixMicro(v()).UTC().AppendFormat(b, "TIMESTAMP'2006-01-02 15:04:05.000000'")
	case []string:
		return writeAll(b, v)
	case []int64:
		return writeAll(b, v)
	case []uint64:
		return writeAll(b, v)
	}
	return fmt.Append(b, value) // a number
}

// writeAll appends a list, of NULL if it is empty.
func writeAll[T any](b []byte, all []T) []byte {
	if len(all) == 0 {
		return append(b, "NULL"...)
	}
	for _, x := range all {
		b = append(write(b, x), ',')
	}
	return b[:len(b)-1]
}
