package postgres

import (
	_ "embed"
	"errors"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

var (
	//go:embed schema.sql
	schemaSQL string
	//go:embed functions.sql
	functionsSQL string
	//go:embed background.sql
	backgroundSQL string
)

// functions are the names of all functions, which in the database have a prefix and a suffix.
var functions = []string{
	"key", "next_token", "walk", "reap", "notify", "micros", "acquire", "hand_over", "release", "end_lease", "break",
	"renew", "shorten", "heartbeat", "due", "advance", "sweep", "sweeper", "guard", "inspect", "list",
}

// wire has the statements, with the names of the objects of one schema and prefix.
type wire struct {
	edition sqlqueue.Edition
	schema  string // the text of the whole schema
	tickets string // the table
	channel string // what the names of notification channels begin with
	txSeed  int64  // of the keys of AcquireTx

	lock, installed, acquire, release, breaks, renew, shorten, heartbeat, provisional, queued, leave,
	due, advance, sweep, sweeper, guard, inspect, list, ping, rights string
}

func newWire(e sqlqueue.Edition, schema, prefix string, async bool) (*wire, error) {
	if err := checkIdentifier("prefix", prefix, longestPrefix); err != nil {
		return nil, err
	}
	if err := checkIdentifier("schema", schema, 63); err != nil {
		return nil, err
	}
	n := names{e, schema, prefix}
	w := &wire{edition: e, tickets: n.qualified("tickets"), channel: prefix + "_"}
	w.txSeed, _ = strconv.ParseInt(key(schema, prefix, "transaction"), 10, 64)
	commits := " WHERE true" // the end of a statement that writes and that somebody waits for
	if async {               // it does not wait for the disk
		commits += set("synchronous_commit", "off")
	}
	removes := commits + set("lock_timeout", lockTimeout.String())
	reads := " WHERE true" + set("bytea_output", "hex") // pgx reads no other text
	replacer := strings.NewReplacer(append(n.pairs(), "{commits}", commits, "{removes}", removes, "{reads}", reads)...)
	for to, text := range map[*string]string{
		&w.schema:      schemaSQL + "\n" + functionsSQL + "\n" + backgroundSQL,
		&w.lock:        "SELECT pg_advisory_xact_lock({schema_key})",
		&w.installed:   "SELECT {installed} FROM pg_catalog.pg_namespace WHERE nspname = 'pg_catalog'", // to lock a table, see state
		&w.acquire:     "SELECT {acquire}($1::bytea,$2::text,$3::bigint,$4::boolean,$5::bigint,$6::bigint,$7::boolean,$8::bytea,$9::bytea,$10::bigint){commits}",
		&w.release:     "SELECT {release}($1::bytea,$2::text,$3::bigint){removes}",
		&w.breaks:      "SELECT {break}($1::bytea,$2::bigint,$3::bigint){removes}",
		&w.renew:       "SELECT {renew}($1::bytea[],$2::bigint[],$3::bigint[],$4::text[],$5::bigint[]){commits}",
		&w.shorten:     "SELECT {shorten}($1::bytea,$2::bigint,$3::text,$4::bigint){commits}",
		&w.heartbeat:   "SELECT h.n, {columns} FROM {heartbeat}($1::bigint,$2::bigint,$3::boolean) AS h(n) LEFT JOIN {tickets} k ON k.process = $1::bigint AND {unconfirmed}{commits}",
		&w.provisional: "SELECT 0::bigint, {columns} FROM {primary} LEFT JOIN {tickets} k ON k.process = $1::bigint AND {unconfirmed}",
		&w.queued:      "SELECT 0::bigint, {columns} FROM {primary} LEFT JOIN {tickets} k ON k.process = $1::bigint AND k.queued AND (k.provisional OR NOT k.held)",
		&w.leave:       "DELETE FROM {processes} WHERE id = $1::bigint",
		&w.due:         "SELECT i, due, first FROM {due}($1::bytea[],$2::bigint)",
		&w.advance:     "SELECT {advance}($1::bytea,$2::bigint){commits}",
		&w.sweep:       "SELECT p_last, p_busy FROM {sweep}($1::bytea,$2::bigint){reads}",
		&w.sweeper:     "SELECT {sweeper}($1::bigint,$2::boolean)",
		&w.guard:       "SELECT {guard}($1::bytea,$2::bigint)",
		&w.inspect:     "SELECT * FROM {inspect}($1::bytea){reads}",
		&w.list:        "SELECT {list}(){reads}",
		&w.ping:        "WITH refused AS (DELETE FROM {tickets} WHERE false) SELECT {lacks}",
		&w.rights:      "SELECT {lacks}",
	} {
		*to = replacer.Replace(text)
	}
	return w, nil
}

// set is a condition that changes a setting for the transaction, which is the statement that has it. It passes through
// every pooler, and leaves nothing on the connection.
func set(setting, value string) string {
	return " AND set_config(" + literal(setting) + ", " + literal(value) + ", true) IS NOT NULL"
}

// names are the names of the objects of one schema, prefix and edition.
type names struct {
	e              sqlqueue.Edition
	schema, prefix string
}

func (n names) qualified(name string) string {
	return pgx.Identifier{n.schema, n.prefix + "_" + name}.Sanitize()
}

func (n names) functions() (all []string) {
	for _, f := range functions {
		all = append(all, n.qualified(f+n.e.Name()))
	}
	return all
}

// pairs returns the placeholders of statements, each followed by its replacement.
func (n names) pairs() []string {
	schema, token, processes := pgx.Identifier{n.schema}.Sanitize(), n.qualified("token"), n.qualified("processes")
	objects := []string{n.qualified("tickets"), processes, token, n.qualified("queues")}
	pairs := []string{
		"{schema}", schema,
		"{schema_text}", literal(schema),
		"{schema_key}", key(n.schema, n.prefix, "schema"),
		"{token_key}", key(n.schema, n.prefix, "token"),
		"{name_seed}", key(n.schema, n.prefix, "name"),
		"{tickets}", n.qualified("tickets"),
		"{tickets_text}", literal(n.qualified("tickets")),
		"{processes}", processes,
		"{queues}", n.qualified("queues"),
		"{token}", token,
		"{token_text}", literal(token),
		"{channel_text}", literal(n.prefix + "_"),
		"{prefix_text}", literal(n.prefix + "_"),
		"{suffix_text}", literal(n.e.Name()),
		"{functions}", strings.Join(functions, "|"),
		"{version}", n.e.String(),
		"{comment_text}", literal(n.e.Comment()),
		"{any}", strconv.FormatInt(sqlqueue.AnyNumber, 10),
		"{columns}", "k.id, k.token, k.held, " + n.qualified("micros"+n.e.Name()) + "(k.expires_at)", // as rowTicket reads them
		"{primary}", "(SELECT set_config('transaction_read_only', 'off', true)) AS writes", // fails on a standby, whose rows may be old
		"{unconfirmed}", "k.queued AND k.held AND k.provisional",
		"{live}", "CASE WHEN k.held THEN k.expires_at > clock_timestamp()" +
			" ELSE EXISTS (SELECT FROM " + processes + " p WHERE p.id = k.process AND p.alive_until > clock_timestamp()) END",
		"{expired}", "CASE WHEN k.held THEN k.expires_at < clock_timestamp() - interval '1 second'" +
			" ELSE NOT EXISTS (SELECT FROM " + processes + " p WHERE p.id = k.process) END",
		"{lacks}", lacks(n),
	}
	for _, index := range []string{"tickets_id", "tickets_process", "tickets_permits"} {
		pairs = append(pairs, "{"+index+"}", pgx.Identifier{n.prefix + "_" + index}.Sanitize(), "{"+index+"_text}", literal(n.qualified(index)))
		objects = append(objects, n.qualified(index))
	}
	for _, column := range []string{"name", "owner", "note"} {
		pairs = append(pairs, "{"+column+"_shown}", shown("k."+column))
	}
	for i, f := range n.functions() {
		pairs = append(pairs, "{"+functions[i]+"}", f)
	}
	return append(pairs, "{installed}", installed(objects, n.functions()))
}

// shown returns an expression for the bytes of a column as text for people. Where the database is not in UTF-8, only
// ASCII is shown as it is.
func shown(column string) string {
	return "CASE WHEN encode(" + column + ", 'hex') ~ " + literal(sqlqueue.Shown(`\x`)) +
		" AND (getdatabaseencoding() = 'UTF8' OR encode(" + column + ", 'hex') ~ '^([0-7].)*$')" +
		" THEN convert_from(" + column + ", 'UTF8') ELSE concat(chr(92), 'x', encode(" + column + ", 'hex')) END"
}

// longestPrefix keeps every identifier within PostgreSQL's 63 bytes.
const longestPrefix = 40

func checkIdentifier(what, s string, longest int) error {
	switch {
	case s == "":
		return fmt.Errorf("%s is empty: want 1 to %d bytes", what, longest)
	case len(s) > longest:
		return fmt.Errorf("%s of %d bytes: want at most %d", what, len(s), longest)
	case !utf8.ValidString(s) || strings.ContainsAny(s, "\x00$\\{}"):
		return fmt.Errorf("%s %q: want UTF-8 without NUL, $, \\, { and }", what, s)
	}
	return nil
}

// literal quotes text that has no backslash.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// key returns a number that differs by schema and prefix, for an advisory lock or as the seed of a hash.
func key(schema, prefix, what string) string {
	h := fnv.New64a()
	for _, s := range []string{"locker", schema, prefix, what} {
		_, _ = h.Write([]byte(s))
		_, _ = h.Write([]byte{0})
	}
	return strconv.FormatInt(int64(h.Sum64()), 10) //nolint:gosec // any 64 bits will do
}

var errReply = errors.New("the database's answer is not one of this version of the schema")

// parseReply reads the answer of a function of the schema: a line, and then grants to tickets of this process.
func parseReply(s string) (text string, grants []sqlqueue.Grant, err error) {
	text, rest, more := strings.Cut(s, "\n")
	for more {
		var line string
		line, rest, more = strings.Cut(rest, "\n")
		g, ok := sqlqueue.ParseGrant(line)
		if !ok {
			return text, grants, fmt.Errorf("%w: %q", errReply, s)
		}
		grants = append(grants, g)
	}
	return text, grants, nil
}
