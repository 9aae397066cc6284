package sim

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// The statements of driver/postgres.

// pgOp is one of them.
type pgOp struct {
	writes  bool
	locks   bool // it takes the lock of the name that is its first parameter
	columns []uint32
}

var (
	pgAnswer = []uint32{oidText}
	pgMine   = []uint32{oidInt8, oidText, oidInt8, oidBool, oidInt8}
)

var pgOps = map[string]pgOp{
	"acquire":     {true, true, pgAnswer},
	"release":     {true, true, pgAnswer},
	"break":       {true, true, pgAnswer},
	"advance":     {true, true, pgAnswer},
	"renew":       {true, false, []uint32{oidInt8}},
	"shorten":     {true, false, []uint32{oidBool}},
	"heartbeat":   {true, false, pgMine},
	"provisional": {false, false, pgMine},
	"queued":      {false, false, pgMine},
	"leave":       {true, false, nil},
	"due":         {false, false, []uint32{oidInt8, oidInt8, oidBool}},
	"sweep":       {true, false, []uint32{oidBytea, oidInt8}},
	"sweeper":     {true, false, []uint32{oidInt8}},
	"inspect":     {false, false, []uint32{oidText, oidInt8, oidBytea, oidBytea, oidBool, oidInt8, oidBool, oidInt8, oidInt8}},
	"list":        {false, false, []uint32{oidBytea}},
	"ping":        {false, false, pgAnswer},
}

var functionOf = regexp.MustCompile(`"locker_([a-z_]+?)\d+_[0-9a-f]{8}"\(`)

// opOf returns the name of a statement.
func opOf(sql string) string {
	switch {
	case strings.Contains(sql, "has_schema_privilege"):
		return "ping"
	case strings.HasPrefix(sql, "SELECT h.n,"):
		return "heartbeat"
	case strings.HasPrefix(sql, "SELECT 0::bigint") && strings.Contains(sql, "NOT k.held"):
		return "queued"
	case strings.HasPrefix(sql, "SELECT 0::bigint"):
		return "provisional"
	case strings.HasPrefix(sql, "DELETE FROM"):
		return "leave"
	}
	if m := functionOf.FindStringSubmatch(sql); m != nil {
		return m[1]
	}
	panic("sim: PostgreSQL: " + sql)
}

// do executes a statement.
func (c *pgCall) do(op string, args []any) [][]any {
	one := func(v ...any) [][]any { return [][]any{v} }
	text := func(i int) string { return args[i].(string) }
	num := func(i int) int64 { return args[i].(int64) }
	yes := func(i int) bool { return args[i].(bool) }
	switch op {
	case "acquire":
		t := &pgTicket{name: text(0), id: text(1), process: num(2), shared: yes(3), permits: num(4), ttl: num(5), owner: text(7), note: text(8)}
		return one(c.acquire(t, yes(6), num(9)))
	case "release":
		return one(c.release(text(0), text(1), num(2)))
	case "break":
		return one(c.breaks(text(0), num(1), num(2)))
	case "advance":
		return one("r" + c.walk(text(0), 0, num(1), false).mine)
	case "renew":
		return c.renewAll(args)
	case "shorten":
		return one(c.shorten(text(0), num(1), text(2), num(3)))
	case "heartbeat":
		return c.showMine(c.heartbeat(num(0), num(1), yes(2)), num(0), false)
	case "provisional", "queued":
		if rows := c.showMine(0, num(0), op == "queued"); rows[0][1] != nil {
			return rows
		}
		return nil
	case "leave":
		delete(c.processes, num(0))
		return nil
	case "due":
		return c.dueOf(args[0].([]any), num(1))
	case "sweep":
		last, busy := c.sweep(text(0), num(1))
		return one(last, busy)
	case "sweeper":
		return one(c.sweeper(num(0), yes(1)))
	case "inspect":
		return c.inspect(text(0))
	case "list":
		return c.list()
	}
	return one("") // ping: no right is missing
}

// renewAll returns the positions of the leases that it has renewed.
func (c *pgCall) renewAll(args []any) (rows [][]any) {
	column := func(i, row int) any { return args[i].([]any)[row] }
	for i := range args[0].([]any) {
		if c.renew(column(0, i).(string), column(1, i).(int64), column(2, i).(int64), column(3, i).(string), column(4, i).(int64)) {
			rows = append(rows, []any{int64(i + 1)})
		}
	}
	return rows
}

// showMine returns a number beside each of the tickets of a process that have a provisional lease and, with all, that wait.
func (c *pgCall) showMine(number, process int64, all bool) (rows [][]any) {
	for _, name := range slices.Sorted(maps.Keys(c.tickets)) {
		for _, t := range c.tickets[name] {
			if t.process != process || !t.queued || !(t.held && t.provisional || all && !t.held) {
				continue
			}
			row := []any{number, t.id, t.token, t.held, nil}
			if t.held {
				row[4] = c.micros(t.expires)
			}
			rows = append(rows, row)
		}
	}
	if rows == nil {
		return [][]any{{number, nil, nil, nil, nil}}
	}
	return rows
}

func (c *pgCall) dueOf(names []any, process int64) (rows [][]any) {
	for i, n := range names {
		name := n.(string)
		due := c.walk(name, 0, process, true).due
		if due >= 0 {
			due = c.micros(due)
		}
		first := c.find(name, waits)
		rows = append(rows, []any{int64(i + 1), due, first != nil && first.process == process})
	}
	return rows
}

func (c *pgCall) inspect(name string) (rows [][]any) {
	for _, t := range c.tickets[name] {
		if !c.live(t) {
			continue
		}
		left := int64(0)
		if t.held {
			left = t.expires - c.now
		}
		rows = append(rows, []any{t.id, t.token, []byte(t.owner), []byte(t.note), t.shared, t.permits, t.held, t.since, left})
	}
	slices.SortFunc(rows, func(a, b []any) int { return int(a[1].(int64) - b[1].(int64)) })
	return rows
}

func (c *pgCall) list() (rows [][]any) {
	for _, name := range slices.Sorted(maps.Keys(c.tickets)) {
		if c.find(name, c.live) != nil {
			rows = append(rows, []any{[]byte(name)})
		}
	}
	return rows
}
