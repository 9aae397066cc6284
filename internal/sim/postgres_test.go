package sim

import (
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// pgTexts are statements as driver/postgres sends them.
var pgTexts = map[string]string{
	"acquire":     "SELECT {acquire}($1::bytea,$2::text,$3::bigint,$4::boolean,$5::bigint,$6::bigint,$7::boolean,$8::bytea,$9::bytea,$10::bigint)",
	"release":     "SELECT {release}($1::bytea,$2::text,$3::bigint)",
	"break":       "SELECT {break}($1::bytea,$2::bigint,$3::bigint)",
	"renew":       "SELECT {renew}($1::bytea[],$2::bigint[],$3::bigint[],$4::text[],$5::bigint[])",
	"shorten":     "SELECT {shorten}($1::bytea,$2::bigint,$3::text,$4::bigint)",
	"heartbeat":   "SELECT h.n, {columns} FROM {heartbeat}($1::bigint,$2::bigint,$3::boolean) AS h(n) LEFT JOIN locker_tickets k ON k.process = $1::bigint AND k.queued AND k.held AND k.provisional",
	"provisional": "SELECT 0::bigint, {columns} FROM locker_tickets k WHERE k.process = $1::bigint AND k.queued AND k.held AND k.provisional",
	"queued":      "SELECT 0::bigint, {columns} FROM locker_tickets k WHERE k.process = $1::bigint AND k.queued AND (k.provisional OR NOT k.held)",
	"leave":       "DELETE FROM locker_processes WHERE id = $1::bigint",
	"due":         "SELECT i, due, first FROM {due}($1::bytea[],$2::bigint)",
	"advance":     "SELECT {advance}($1::bytea,$2::bigint)",
	"sweep":       "SELECT p_last, p_busy FROM {sweep}($1::bytea,$2::bigint)",
	"sweeper":     "SELECT {sweeper}($1::bigint,$2::boolean)",
	"inspect":     "SELECT * FROM {inspect}($1::bytea)",
	"list":        "SELECT {list}()",
}

// pgReal is a real server, with the schema of the driver.
type pgReal struct {
	c       *pgx.Conn
	texts   *strings.Replacer
	notices []string
}

func newPgReal(t *testing.T) *pgReal {
	r := new(pgReal)
	ctx := t.Context()
	cfg, err := pgx.ParseConfig(testbed.Postgres(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	cfg.OnNotification = func(_ *pgconn.PgConn, n *pgconn.Notification) { r.notices = append(r.notices, n.Channel+" "+n.Payload) }
	if r.c, err = pgx.ConnectConfig(ctx, cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.c.Close(context.Background()) })
	schema, err := postgres.Schema()
	if err != nil {
		t.Fatal(err)
	}
	pairs := []string{}
	for _, m := range regexp.MustCompile(`FUNCTION ("public"."locker_([a-z_]+?)\d+_[0-9a-f]{8}")\(`).FindAllStringSubmatch(schema, -1) {
		pairs = append(pairs, "{"+m[2]+"}", m[1])
		if m[2] == "micros" {
			pairs = append(pairs, "{columns}", "k.id, k.token, k.held, "+m[1]+"(k.expires_at)")
		}
	}
	r.texts = strings.NewReplacer(pairs...)
	r.exec(t, schema)
	for i := range int64(3) {
		r.exec(t, fmt.Sprintf("LISTEN locker_%x", pgProcessID(i)>>16))
	}
	return r
}

func pgProcessID(i int64) int64 { return (i+1)<<16 | 7 }

func (r *pgReal) exec(t *testing.T, sql string) {
	if _, err := r.c.PgConn().Exec(t.Context(), sql).ReadAll(); err != nil {
		t.Fatalf("%v: %.200s", err, sql)
	}
}

// call executes a statement.
func (r *pgReal) call(t *testing.T, sql string, args ...any) (all [][]any) {
	sql = r.texts.Replace(sql)
	given := make([]any, len(args))
	for i, oid := range parameters(sql) {
		given[i] = pgGiven(oid, args[i])
	}
	rows, err := r.c.Query(t.Context(), sql, given...)
	if err == nil {
		all, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
	}
	if err != nil {
		t.Fatalf("%s %v: %v", sql, args, err)
	}
	return all
}

// pgGiven makes a parameter of the model one of pgx.
func pgGiven(oid uint32, v any) any {
	switch oid {
	case oidBytea:
		return []byte(v.(string))
	case oidByteaArray:
		return pgArray(v, func(s string) []byte { return []byte(s) })
	case oidTextArray:
		return pgArray(v, func(s string) string { return s })
	case oidInt8Array:
		return pgArray(v, func(n int64) int64 { return n })
	}
	return v
}

func pgArray[A, B any](v any, f func(A) B) (all []B) {
	for _, x := range v.([]any) {
		all = append(all, f(x.(A)))
	}
	return all
}

// kilo is the unit of all times, in µs: the test takes less, so what is left of a time is rounded up to it.
const kilo = 1000e6

// pgRows writes an answer, or a part of the tables. Tokens are written as the IDs of their tickets.
func pgRows(rows [][]any, tokens map[int64]string) string {
	var b strings.Builder
	for _, r := range rows {
		for _, v := range r {
			switch v := v.(type) {
			case int64:
				b.WriteString(pgNumber(v, tokens))
			case []byte:
				fmt.Fprintf(&b, "%q", v)
			case string:
				for _, f := range strings.Fields(v) {
					if n, err := strconv.ParseInt(f, 10, 64); err == nil {
						f = pgNumber(n, tokens)
					}
					b.WriteString(f + " ")
				}
			default:
				fmt.Fprint(&b, v)
			}
			b.WriteString("; ")
		}
		b.WriteString("\n")
	}
	return b.String()
}

func pgNumber(n int64, tokens map[int64]string) string {
	switch {
	case n == math.MaxInt64:
		return "any"
	case n > 1e14 && tokens[n] != "":
		return "token of " + tokens[n]
	case n > 1e14:
		return "time"
	case n < -1:
		return "past"
	case n > 1e6:
		return fmt.Sprint((n+kilo-1)/kilo, "k")
	}
	return fmt.Sprint(n)
}

// The tables, as dump has those of the model.
const (
	pgDump = `SELECT k.name, k.id, k.token, k.slot = 0, k.process, k.queued, k.held, k.provisional, k.shared, k.permits, k.ttl,
	CASE WHEN k.held THEN (extract(epoch FROM k.expires_at - clock_timestamp()) * 1000000)::bigint ELSE 0 END, k.owner, k.note
	FROM locker_tickets k ORDER BY k.name, k.slot`

	pgDumpProcesses = `SELECT id, heartbeat, (extract(epoch FROM alive_until - clock_timestamp()) * 1000000)::bigint FROM locker_processes ORDER BY id`
)

// tables returns what a server has, and adds its tokens to those known.
func (r *pgReal) tables(t *testing.T, tokens map[int64]string) string {
	rows := r.call(t, pgDump)
	for _, row := range rows {
		tokens[row[2].(int64)] = row[1].(string)
	}
	return pgRows(rows, tokens) + pgRows(r.call(t, pgDumpProcesses), tokens)
}

func (d *database) dump(tokens map[int64]string) string {
	var rows, processes [][]any
	now := d.time()
	for _, name := range slices.Sorted(maps.Keys(d.tables.tickets)) {
		for _, t := range d.tables.tickets[name] {
			left := int64(0)
			if t.held {
				left = t.expires - now
			}
			tokens[t.token] = t.id
			rows = append(rows, []any{
				[]byte(name), t.id, t.token, t.slot == 0, t.process, t.queued, t.held, t.provisional, t.shared, t.permits, t.ttl, left,
				[]byte(t.owner), []byte(t.note),
			})
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.tables.processes)) {
		p := d.tables.processes[id]
		processes = append(processes, []any{id, p.heartbeat, p.alive - now})
	}
	return pgRows(rows, tokens) + pgRows(processes, tokens)
}

// TestModelOfPostgres: the model answers as the functions of the driver do in a real server, has the same tickets after each
// call, and notifies the same processes.
func TestModelOfPostgres(t *testing.T) {
	pg := newPgReal(t)
	model := newDatabase(&server{w: &world{begun: time.Now()}, name: "postgres"})
	model.rate, model.ahead = 1, 0
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := newStream(seed, "calls")
	ours, theirs := make(map[int64]string), make(map[int64]string)
	begun := time.Now()
	for i := 0; i < 3000 && time.Since(begun) < 5*time.Minute; i++ {
		if rnd.one(25) { // time passes
			const step = kilo + 2e6
			model.ahead += step * time.Microsecond
			pg.exec(t, "UPDATE locker_tickets SET expires_at = expires_at - interval '1002 s'; UPDATE locker_processes SET alive_until = alive_until - interval '1002 s'")
		}
		op := pick(rnd, pgOften...)
		args := pgArgs(rnd, model, op)
		sent := slices.Clone(args)
		pg.translate(t, op, sent, ours)
		pg.notices = nil
		rows, notices := model.call(op, args)
		answer := pg.call(t, pgTexts[op], sent...)
		got := model.dump(ours)
		want := pg.tables(t, theirs)
		got, want = got+pgAnswerOf(op, rows, ours), want+pgAnswerOf(op, answer, theirs)
		var told []string
		for _, n := range notices {
			told = append(told, fmt.Sprintf("locker_%x %s", n.process>>16, n.text))
		}
		got, want = got+pgTold(told, ours), want+pgTold(pg.notices, theirs)
		if got != want {
			t.Fatalf("call %d, %s %v: the model has\n%s\nwant\n%s", i, op, args, got, want)
		}
	}
}

func pgTold(notices []string, tokens map[int64]string) string {
	slices.Sort(notices)
	var rows [][]any
	for _, n := range notices {
		rows = append(rows, []any{n})
	}
	return pgRows(rows, tokens)
}

// pgAnswerOf writes an answer. The order of some is not fixed, and since when a ticket is there is not compared.
func pgAnswerOf(op string, rows [][]any, tokens map[int64]string) string {
	if op == "inspect" {
		for _, r := range rows {
			r[7] = int64(0)
		}
	}
	lines := strings.SplitAfter(pgRows(rows, tokens), "\n")
	slices.Sort(lines)
	return op + ": " + strings.Join(lines, "")
}

// pgOften are the calls, each as often as it is drawn.
var pgOften = []string{
	"acquire", "acquire", "acquire", "acquire", "acquire", "acquire", "acquire", "acquire", "release", "release", "release", "release",
	"heartbeat", "heartbeat", "heartbeat", "heartbeat", "heartbeat", "heartbeat", "renew", "renew", "break", "shorten", "provisional", "queued", "leave", "due", "advance", "sweep",
	"sweeper", "inspect", "list",
}

// pgArgs draws a call.
func pgArgs(rnd *stream, d *database, op string) []any {
	n := rnd.n(3)
	name, process := fmt.Sprint("n", n), pgProcessID(int64(rnd.n(3)))
	id := fmt.Sprint(name, "-", rnd.n(5))
	life := func() int64 { return int64(1+rnd.n(6)) * kilo }
	slot, token := int64(0), int64(1)
	c := &pgCall{pgTables: &d.tables}
	if t := c.byID(name, id); t != nil {
		slot, token = t.slot, t.token
	}
	switch op {
	case "acquire":
		shared := n > 0
		permits := int64(1 + rnd.n(3))
		if n == 1 || rnd.one(4) {
			shared = rnd.one(2)
		}
		if rnd.one(3) || !shared {
			permits = math.MaxInt64
		}
		until := pick(rnd, int64(math.MaxInt64), math.MaxInt64, math.MaxInt64, math.MaxInt64, 0)
		return []any{name, id, process, shared, permits, life(), !rnd.one(4), pick(rnd, "", "me"), pick(rnd, "", "\x00\xff"), until}
	case "release":
		return []any{name, id, process}
	case "break":
		return []any{name, token, process}
	case "renew":
		return []any{[]any{name}, []any{slot}, []any{token}, []any{id}, []any{life()}}
	case "shorten":
		return []any{name, token, id, life()}
	case "heartbeat":
		return []any{process, life(), !rnd.one(4)}
	case "due":
		return []any{[]any{"n0", "n1", "nobody", "n2"}, process}
	case "advance":
		return []any{name, process}
	case "sweep":
		return []any{pick(rnd, "", "n0"), int64(1 + rnd.n(3))}
	case "sweeper":
		return []any{pick(rnd, int64(10e6), 45e6), rnd.one(3)}
	case "inspect":
		return []any{name}
	case "list":
		return nil
	}
	return []any{process}
}

// translate puts the tokens of the real server into the parameters of a call, in the place of the model's.
func (r *pgReal) translate(t *testing.T, op string, args []any, ours map[int64]string) {
	at := func(name, id any) (slot, token int64) {
		rows := r.call(t, "SELECT slot, token FROM locker_tickets WHERE name = $1::bytea AND id = $2::text", name, id)
		if len(rows) == 0 {
			return 0, 1
		}
		return rows[0][0].(int64), rows[0][1].(int64)
	}
	switch op {
	case "renew":
		slot, token := at(args[0].([]any)[0], args[3].([]any)[0])
		args[1], args[2] = []any{slot}, []any{token}
	case "shorten":
		_, args[1] = at(args[0], args[2])
	case "break":
		_, args[1] = at(args[0], ours[args[1].(int64)])
	}
}
