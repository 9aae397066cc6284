package postgres

import (
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlline"
)

// anyNumber is how the tables store that a ticket has no limit.
const anyNumber = math.MaxInt64

// wire is what is said to the database: statements that name the objects of
// one schema and prefix.
type wire struct {
	edition   edition
	schema    string // text of the whole schema
	tickets   string // the table
	lock      string // under which the schema is made
	installed string // what is there of it
	channel   string // prefix of the notification channels

	acquire, release, releaseFirst, breaks, renew, beat, claims, queued, leave,
	look, poke, sweep, guard, inspect, list, ping, rights string

	txSeed int64 // of the keys of AcquireTx
}

// Longest prefix, so that every identifier stays within PostgreSQL's 63 bytes.
const longestPrefix = 40

func newWire(e edition, schema, prefix string) (*wire, error) {
	if err := checkIdentifier("prefix", prefix, longestPrefix); err != nil {
		return nil, err
	}
	if err := checkIdentifier("schema", schema, 63); err != nil {
		return nil, err
	}
	q := func(name string) string { return pgx.Identifier{schema, prefix + "_" + name}.Sanitize() }
	bare := func(name string) string { return pgx.Identifier{prefix + "_" + name}.Sanitize() }
	f := func(name string) string { return q(name + e.suffix()) }
	token := q("token")
	channel := prefix + "_"
	pairs := []string{
		"{schema}", pgx.Identifier{schema}.Sanitize(),
		"{schema_text}", literal(pgx.Identifier{schema}.Sanitize()),
		"{schema_key}", key(schema, prefix, "schema"),
		"{token_key}", key(schema, prefix, "token"),
		"{line_seed}", key(schema, prefix, "line"),
		"{tickets}", q("tickets"),
		"{processes}", q("processes"),
		"{queues}", q("queues"),
		"{live}", live(q("processes")),
		"{any}", strconv.FormatInt(anyNumber, 10),
		"{version}", e.String(),
		"{comment_text}", literal(e.comment()),
		"{prefix_text}", literal(prefix + "_"),
		"{suffix_text}", literal(e.suffix()),
		"{functions}", strings.Join(functions, "|"),
		"{token}", token,
		"{token_text}", literal(token),
		"{tickets_text}", literal(q("tickets")),
		"{channel_text}", literal(channel),
	}
	for _, index := range []string{"tickets_id", "tickets_process", "tickets_permits"} {
		pairs = append(pairs, "{"+index+"}", bare(index), "{"+index+"_text}", literal(q(index)))
	}
	for _, column := range []string{"name", "owner", "note"} {
		pairs = append(pairs, "{"+column+"_shown}", shown("k."+column))
	}
	var qualified []string
	for _, name := range functions {
		pairs = append(pairs, "{"+name+"}", f(name))
		qualified = append(qualified, f(name))
	}
	const row = ", k.id, k.name, k.token, k.held, (extract(epoch FROM k.expires_at - clock_timestamp()) * 1000000)::bigint"
	lacking := lacks(schema, q("tickets"), q("processes"), token, qualified)
	seed, _ := strconv.ParseInt(key(schema, prefix, "transaction"), 10, 64)
	return &wire{
		edition: e,
		schema:  strings.NewReplacer(pairs...).Replace(schemaSQL + "\n" + queuesSQL),
		tickets: q("tickets"),
		lock:    "SELECT pg_advisory_xact_lock(" + key(schema, prefix, "schema") + ")",
		installed: installed([]string{
			q("tickets"), q("tickets_id"), q("tickets_process"), q("tickets_permits"), q("processes"), token, q("queues"),
		}, qualified),
		channel: channel,
		acquire: "SELECT " + f("acquire") + "($1::bytea,$2::text,$3::bigint,$4::boolean,$5::bigint,$6::bigint,$7::boolean,$8::bytea,$9::bytea,$10::bigint)",
		release: "SELECT " + f("release") + "($1::bytea,$2::text,$3::bigint,$4::boolean)",
		// Nobody waits behind a ticket that is not marked, and who is about to marks
		// it first: no lock of the name is needed, and no function. When there is no
		// such ticket, its row may now be locked, after which that lock is not to be
		// taken: all take it first. An xmax says that a transaction has locked the row,
		// one that it guards, perhaps.
		releaseFirst: "WITH d AS (DELETE FROM " + q("tickets") + ` WHERE name = $1::bytea AND slot = 0 AND id = $2::text AND NOT queued AND xmax = 0
	RETURNING expires_at > clock_timestamp() AS live)
SELECT coalesce((SELECT CASE WHEN live THEN 'r' ELSE 'l' END FROM d), ` + f("release") + "($1::bytea,$2::text,$3::bigint,false))",
		breaks: "SELECT " + f("break") + "($1::bytea,$2::bigint,$3::bigint)",
		renew:  "SELECT " + f("renew") + "($1::bytea[],$2::bigint[],$3::bigint[],$4::text[],$5::bigint[])",
		beat: "SELECT b.n" + row + " FROM " + f("beat") + "($1::bigint,$2::bigint,$3::boolean) AS b(n) LEFT JOIN " +
			q("tickets") + " k ON k.process = $1::bigint AND k.queued AND k.held AND k.claim",
		claims:  "SELECT 0::bigint" + row + " FROM " + q("tickets") + " k WHERE k.process = $1::bigint AND k.queued AND k.held AND k.claim",
		queued:  "SELECT 0::bigint" + row + " FROM " + q("tickets") + " k WHERE k.process = $1::bigint AND k.queued AND (k.claim OR NOT k.held)",
		leave:   "DELETE FROM " + q("processes") + " WHERE id = $1::bigint",
		look:    "SELECT i, due, first FROM " + f("look") + "($1::bytea[],$2::bigint)",
		poke:    "SELECT " + f("poke") + "($1::bytea,$2::bigint)",
		sweep:   "SELECT p_last, p_busy FROM " + f("sweep") + "($1::bytea,$2::bigint)",
		guard:   "SELECT " + f("guard") + "($1::bytea,$2::bigint)",
		inspect: "SELECT * FROM " + f("inspect") + "($1::bytea)",
		list:    "SELECT " + f("list") + "()",
		ping:    "WITH refused AS (DELETE FROM " + q("tickets") + " WHERE false) SELECT " + lacking,
		rights:  "SELECT " + lacking,
		txSeed:  seed,
	}, nil
}

// functions are the names of all functions, which in the database have the prefix and the suffix.
var functions = []string{
	"key", "number", "walk", "reap", "notify", "micros", "acquire", "pass", "release",
	"end", "break", "renew", "beat", "look", "poke", "sweep", "guard", "inspect", "list",
}

// shown is the bytes of a column as text that people may be shown. Where the database is not
// in UTF-8, ASCII is shown.
func shown(column string) string {
	return "CASE WHEN encode(" + column + ", 'hex') ~ " + literal(sqlline.Shown(`\x`)) +
		" AND (getdatabaseencoding() = 'UTF8' OR encode(" + column + ", 'hex') ~ '^([0-7].)*$')" +
		" THEN convert_from(" + column + ", 'UTF8') ELSE concat(chr(92), 'x', encode(" + column + ", 'hex')) END"
}

// live is the condition that a ticket k is in the queue.
func live(processes string) string {
	return `CASE WHEN k.held THEN k.expires_at > clock_timestamp() ELSE EXISTS (
	SELECT FROM ` + processes + ` p WHERE p.id = k.process AND p.alive_until > clock_timestamp()) END`
}

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

// literal quotes text that holds no backslash.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// key is a number of a schema's and prefix's own, for an advisory lock or as
// the seed of a hash.
func key(schema, prefix, what string) string {
	h := fnv.New64a()
	for _, s := range []string{"locker", schema, prefix, what} {
		_, _ = h.Write([]byte(s))
		_, _ = h.Write([]byte{0})
	}
	return strconv.FormatInt(int64(h.Sum64()), 10) //nolint:gosec // any 64 bits will do
}

// permits is a limit as the tables store it.
func permits(r driver.Request) int64 {
	if r.Limit == 0 {
		return anyNumber
	}
	return int64(r.Limit)
}

// slot is where a held ticket's row is.
func slot(h driver.Hold) int64 {
	if h.Shared {
		return int64(h.Token) //nolint:gosec // tokens are bigints
	}
	return 0
}

// A grant is news of a ticket that waited. Its lease started after the beat
// was sent.
type grant struct {
	id    string
	token uint64
	beat  int64
}

// A reply is what a function of the schema answers: words, and then grants
// that the process has to deliver to itself.
type reply struct {
	words  []string
	grants []grant
}

var errReply = errors.New("the database's answer is not one of this version of the schema")

func parseReply(s string) (reply, error) {
	first, rest, _ := strings.Cut(s, "\n")
	r := reply{words: strings.Fields(first)}
	if len(r.words) == 0 {
		return r, fmt.Errorf("%w: %q", errReply, s)
	}
	for rest != "" {
		var line string
		line, rest, _ = strings.Cut(rest, "\n")
		g, ok := parseGrant(strings.Fields(line))
		if !ok {
			return r, fmt.Errorf("%w: %q", errReply, line)
		}
		r.grants = append(r.grants, g)
	}
	return r, nil
}

// parseGrant reads "g ID TOKEN BEAT".
func parseGrant(words []string) (grant, bool) {
	if len(words) != 4 || words[0] != "g" {
		return grant{}, false
	}
	token, err1 := strconv.ParseUint(words[2], 10, 63)
	beat, err2 := strconv.ParseInt(words[3], 10, 64)
	return grant{id: words[1], token: token, beat: beat}, err1 == nil && err2 == nil
}

// parseLoss reads "l ID TOKEN HEXNAME".
func parseLoss(words []string) (driver.Hold, bool) {
	if len(words) != 4 || words[0] != "l" {
		return driver.Hold{}, false
	}
	token, err1 := strconv.ParseUint(words[2], 10, 63)
	name, err2 := hex.DecodeString(words[3])
	return driver.Hold{Name: string(name), ID: words[1], Token: token}, err1 == nil && err2 == nil
}

// parseDue reads "d HEXNAME": a line to look at.
func parseDue(words []string) (name string, ok bool) {
	if len(words) != 2 || words[0] != "d" {
		return "", false
	}
	b, err := hex.DecodeString(words[1])
	return string(b), err == nil
}

// number is a word that is a number.
func (r reply) number(i int) (uint64, error) {
	if i >= len(r.words) {
		return 0, fmt.Errorf("%w: %q", errReply, r.words)
	}
	n, err := strconv.ParseUint(r.words[i], 10, 63)
	if err != nil {
		return 0, fmt.Errorf("%w: %q", errReply, r.words)
	}
	return n, nil
}
