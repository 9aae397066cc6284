package sim

import (
	"encoding/hex"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The statements of driver/mysql, by their texts (statements.sql).

// myOp is one of them.
type myOp struct {
	name    string
	text    *regexp.Regexp // its groups are the values
	writes  bool
	primary bool // it is refused by a server that is read only
	slot    bool // it locks the slot of the name that is its first value
	anchor  bool // … and the anchor
	call    bool // it is a procedure that changes a queue: it may be ended after its commit
	sleeps  bool
	named   bool // its first value is a name
	do      func(c *myCall, v []string) myAnswer
}

// Holes of the texts.
const (
	myBytes = `(x'[0-9a-f]*')`
	myInt   = `(-?\d+)`
	myList  = `\(([^)]*)\)`
)

// statement makes the expression for a text. In it, words that begin with $ are holes, and … is anything.
func statement(text string) *regexp.Regexp {
	r := regexp.QuoteMeta(text)
	for hole, group := range map[string]string{
		"bytes": myBytes, "int": myInt, "list": myList, "time": `(TIMESTAMP'[^']*'|UTC_TIMESTAMP\(6\))`, "bool": "([01])",
	} {
		r = strings.ReplaceAll(r, `\$`+hole, group)
	}
	return regexp.MustCompile("^" + strings.ReplaceAll(r, "…", ".*?"))
}

func procedure(name, arguments string) *regexp.Regexp {
	return statement("CALL `locker_" + name + "…`(" + arguments + ")")
}

const (
	myTakes    = "$int, $bytes, $bytes, $bytes, $int, $bool, $int, $int, $bool, $bytes, $bytes, $time, $int"
	myLeases   = "… INTERVAL $int MICROSECOND) WHERE entry IN $list AND id IN $list AND seq IN $list AND name IN $list"
	myKnown    = "SELECT IF(… WHERE process BETWEEN $int AND $int AND provisional = 1 AND seq NOT IN $list) > 0, 2, IF(… connection <> $int) > 0, 3, "
	mySlots    = "UPDATE `locker_slots` SET "
	myFree     = "INSERT INTO `locker_tickets` (entry, name, id,… VALUES ($bytes, $bytes, $bytes, $int, 0, (SELECT 1 …= $int AND … < $time AND …) = $int AND …FOR UPDATE), "
	myFreeRest = "$bool, $int, $int, UTC_TIMESTAMP(6),… MICROSECOND, $bytes, $bytes)"
)

// myOps are the statements; the first that fits counts.
var myOps = []*myOp{
	{name: "take", text: statement(myFree + myFreeRest), writes: true, slot: true, anchor: true, named: true, do: func(c *myCall, v []string) myAnswer {
		k := &myTicket{name: v[0], id: v[2], process: myNum(v[3]), shared: v[7] == "1", permits: myNum(v[8]), ttl: myNum(v[9]), owner: v[10], note: v[11]}
		return c.takeFree(k, moment(v[5]), uint64(myNum(v[6]))) //nolint:gosec // positive
	}},
	{name: "take_call", text: procedure("take", myTakes), writes: true, slot: true, anchor: true, call: true, named: true, do: func(c *myCall, v []string) myAnswer {
		if v[1] == "65535" { // of a ping
			return c.done(myNoSlot, 0)
		}
		k := &myTicket{name: v[0], id: v[3], process: myNum(v[4]), shared: v[5] == "1", permits: myNum(v[6]), ttl: myNum(v[7]), owner: v[9], note: v[10]}
		return c.take(k, v[8] == "1", moment(v[11]), uint64(myNum(v[12]))) //nolint:gosec // positive
	}},
	{name: "remove_call", text: procedure("remove", "$bytes, $bytes, $bytes, $int, $int"), writes: true, anchor: true, call: true, named: true, do: func(c *myCall, v []string) myAnswer {
		return c.removes(v[0], v[2], uint64(myNum(v[3])), myNum(v[4])) //nolint:gosec // positive
	}},
	{name: "advance_call", text: procedure("advance", "$int, $bytes, $int, $bool"), writes: true, slot: true, anchor: true, call: true, named: true, do: func(c *myCall, v []string) myAnswer {
		return c.advance(v[0], myNum(v[2]), v[3] == "1")
	}},
	{name: "wake_call", text: procedure("wake", "'$int,'"), do: func(c *myCall, v []string) myAnswer {
		c.woken = append(c.woken, myNum(v[0]))
		return myAnswer{}
	}},
	{name: "release", text: statement("DELETE FROM `locker_tickets` WHERE entry = $bytes AND id = $bytes AND queued = 0"), writes: true, anchor: true, named: true, do: func(c *myCall, v []string) myAnswer {
		return c.release(v[0], v[1])
	}},
	{name: "renew", text: statement("UPDATE `locker_tickets` FORCE INDEX (PRIMARY) SET provisional = 0," + myLeases), writes: true, do: func(c *myCall, v []string) myAnswer {
		return c.renew(v, myNum(v[0]), math.MinInt64)
	}},
	{name: "shorten", text: statement("UPDATE `locker_tickets` FORCE INDEX (PRIMARY) SET expires_at = LEAST" + myLeases), writes: true, do: func(c *myCall, v []string) myAnswer {
		return c.renew(v, math.MinInt64, myNum(v[0]))
	}},
	{name: "renewed", text: statement("SELECT seq FROM `locker_tickets` WHERE entry IN $list AND id IN $list AND seq IN $list AND name IN $list"), do: func(c *myCall, v []string) myAnswer {
		a := myAnswer{columns: 1}
		for _, k := range c.leases(append([]string{""}, v...)) {
			a.rows = append(a.rows, []any{k.seq})
		}
		return a
	}},
	{name: "heartbeat", text: statement("UPDATE `locker_processes` SET heartbeat = … INTERVAL $int MICROSECOND WHERE id = $int AND"), writes: true, do: func(c *myCall, v []string) myAnswer {
		return c.heartbeat(myNum(v[1]), myNum(v[0]), nil)
	}},
	{name: "register", text: statement("INSERT INTO `locker_processes` …SELECT $int, LAST_INSERT_ID(1), … INTERVAL $int MICROSECOND, $int, $int FROM DUAL"), writes: true, do: func(c *myCall, v []string) myAnswer {
		return c.heartbeat(myNum(v[0]), myNum(v[1]), &myProcess{server: uint64(myNum(v[2])), connection: myNum(v[3])}) //nolint:gosec // positive
	}},
	{name: "listening", text: statement("UPDATE `locker_processes` SET server = $int, connection = $int WHERE id = $int AND"), writes: true, do: func(c *myCall, v []string) myAnswer {
		return c.listens(myNum(v[2]), myNum(v[2]), v, false)
	}},
	{name: "listening_still", text: statement("UPDATE `locker_processes` SET server = $int, connection = $int WHERE id BETWEEN $int AND $int AND"), writes: true, do: func(c *myCall, v []string) myAnswer {
		return c.listens(myNum(v[2]), myNum(v[3]), v, true)
	}},
	{name: "depart", text: statement("DELETE FROM `locker_processes` WHERE id = $int AND"), writes: true, do: func(c *myCall, v []string) myAnswer {
		return c.depart(v[:1], math.MaxInt64)
	}},
	{name: "reap_processes", text: statement("DELETE FROM `locker_processes` WHERE id IN $list AND"), writes: true, do: func(c *myCall, v []string) myAnswer {
		return c.depart(myItems(v[0]), c.now)
	}},
	{name: "mine", text: procedure("mine", "$int, $bool"), primary: true, do: func(c *myCall, v []string) myAnswer {
		a := myAnswer{columns: 4}
		for _, k := range c.owned(myNum(v[0]), myNum(v[0]), v[1] == "1") {
			left := int64(0)
			if k.held {
				left = k.expires - c.now
			}
			a.rows = append(a.rows, []any{k.seq, k.id, myBool(k.held), left})
		}
		return a
	}},
	{name: "due", text: statement("SELECT $int, IF((SELECT held FROM"), do: dues},
	{name: "first", text: statement("SELECT process FROM `locker_tickets` FORCE INDEX (queue) WHERE name = $bytes AND held = 0"), named: true, do: func(c *myCall, v []string) myAnswer {
		for _, k := range c.queue(v[0]) {
			if !k.held {
				return myAnswer{columns: 1, rows: [][]any{{k.process}}}
			}
		}
		return myAnswer{columns: 1}
	}},
	{name: "granted", text: statement("SELECT seq, id, heartbeat FROM `locker_tickets` WHERE process BETWEEN $int AND $int AND"), do: func(c *myCall, v []string) myAnswer {
		a := myAnswer{columns: 3}
		for _, k := range c.owned(myNum(v[0]), myNum(v[1]), false) {
			a.rows = append(a.rows, []any{k.seq, k.id, k.heartbeat})
		}
		return a
	}},
	{name: "list", text: procedure("show", "NULL"), do: func(c *myCall, _ []string) myAnswer {
		a := myAnswer{columns: 1}
		var names []string
		for _, k := range c.sorted() {
			if k.named && c.live(k) && !slices.Contains(names, k.name) {
				names = append(names, k.name)
				a.rows = append(a.rows, []any{k.name})
			}
		}
		return a
	}},
	{name: "inspect", text: procedure("show", "$bytes"), named: true, do: func(c *myCall, v []string) myAnswer {
		a := myAnswer{columns: 9}
		for _, k := range c.queue(v[0]) {
			if c.live(k) {
				left := int64(0)
				if k.held {
					left = k.expires - c.now
				}
				a.rows = append(a.rows, []any{k.seq, k.id, k.owner, k.note, myBool(k.shared), k.permits, myBool(k.held), k.since, left})
			}
		}
		return a
	}},
	{name: "clock", text: procedure("clock", ""), do: func(c *myCall, _ []string) myAnswer {
		return myAnswer{columns: 3, rows: [][]any{{c.now, c.d.start, c.raised}}}
	}},
	{name: "raise", text: statement("INSERT INTO `locker_tickets` (entry, seq, process,… VALUES ($bytes,…) = $int AND"), writes: true, do: func(c *myCall, v []string) myAnswer {
		return c.raise(v[0], uint64(myNum(v[1]))) //nolint:gosec // positive
	}},
	{name: "raise_clear", text: statement("DELETE FROM `locker_tickets` WHERE entry = $bytes AND"), writes: true, do: func(c *myCall, v []string) myAnswer {
		a := myAnswer{changed: uint64(myBool(c.tickets[v[0]] != nil))} //nolint:gosec // 0 or 1
		delete(c.tickets, v[0])
		return a
	}},
	{name: "raised", text: statement(mySlots + "start = $int WHERE …) = $int AND"), writes: true, do: func(c *myCall, v []string) myAnswer {
		if uint64(myNum(v[1])) != c.d.start || c.raised == c.d.start { //nolint:gosec // positive
			return myAnswer{}
		}
		c.raised = c.d.start
		return myAnswer{changed: 1}
	}},
	{name: "self", text: statement("SELECT …, CONNECTION_ID() FROM DUAL"), do: func(c *myCall, _ []string) myAnswer {
		return myAnswer{columns: 2, rows: [][]any{{c.d.start, c.l.number}}}
	}},
	{name: "bed", text: statement("SELECT GET_LOCK(CONCAT('locker.', $int, '.', $int), 0)"), do: func(c *myCall, v []string) myAnswer {
		name, got := lockName(uint64(myNum(v[0])), myNum(v[1])), int64(0) //nolint:gosec // positive
		if o := c.d.owner(name); o == nil || o == c.l {
			c.d.named[name], got = c.l, 1
		}
		return myAnswer{columns: 1, rows: [][]any{{got}}}
	}},
	{name: "sleep", text: statement(myKnown + "…'locker.', $int, '.', $int), $int)"), sleeps: true},
	{name: "wake", text: statement("KILL QUERY $int"), do: func(c *myCall, v []string) myAnswer {
		return refused(c.d.kill(c.l, myNum(v[0])))
	}},
	{name: "stale", text: statement("SELECT DISTINCT COALESCE(t.name, t.entry)… > $bytes AND …LIMIT $int"), do: func(c *myCall, v []string) myAnswer {
		a := myAnswer{columns: 1}
		for _, name := range c.stale(v[0], myNum(v[1])) {
			a.rows = append(a.rows, []any{name})
		}
		return a
	}},
	{name: "alone", text: statement("/*M! SET…DELETE …entry IN $list AND entry = name"), writes: true, do: func(c *myCall, v []string) myAnswer {
		return myAnswer{changed: c.alone(myItems(v[0]))}
	}},
	{name: "silent", text: statement("SELECT id FROM `locker_processes` WHERE alive_until <"), do: func(c *myCall, _ []string) myAnswer {
		a := myAnswer{columns: 1}
		for id, p := range c.processes {
			if p.alive < c.now-1e6 {
				a.rows = append(a.rows, []any{id})
			}
		}
		return a
	}},
	{name: "sweep_turn", text: statement(mySlots + "swept_until = … INTERVAL $int MICROSECOND WHERE …= 0 AND (swept_until"), writes: true, do: func(c *myCall, v []string) myAnswer {
		if c.swept > c.now && c.swept <= c.now+60e6 {
			return myAnswer{}
		}
		c.swept = c.now + myNum(v[0])
		return myAnswer{changed: 1}
	}},
	{name: "sweep_done", text: statement(mySlots + "swept_until = … INTERVAL $int MICROSECOND"), writes: true, do: func(c *myCall, v []string) myAnswer {
		c.swept = c.now + myNum(v[0])
		return myAnswer{changed: 1}
	}},
	{name: "sweep_left", text: statement("SELECT TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), swept_until)"), do: func(c *myCall, _ []string) myAnswer {
		return myAnswer{columns: 1, rows: [][]any{{c.swept - c.now}}}
	}},
	{name: "tx_sweep", text: statement("/*M! SET…DELETE …x FROM"), writes: true, do: nothing},
	{name: "ping", text: statement("INSERT INTO …ON DUPLICATE KEY UPDATE"), writes: true, do: nothing},
	{name: "ping", text: statement("DELETE FROM "), writes: true, do: nothing},
	{name: "isolation", text: statement("SET SESSION TRANSACTION"), do: nothing},
}

func nothing(*myCall, []string) myAnswer { return myAnswer{} }

// opOfMySQL returns a statement and its values. The name of a queue is the first, if it locks one.
func opOfMySQL(text string) (*myOp, []string) {
	op, v, ok := findOp(text)
	if !ok {
		panic("sim: MySQL: " + text)
	}
	return op, v
}

func findOp(text string) (op *myOp, v []string, ok bool) {
	for _, op := range myOps {
		m := op.text.FindStringSubmatch(text)
		if m == nil {
			continue
		}
		v := m[1:]
		if op.name == "due" {
			return op, []string{text}, true
		}
		for i := range v {
			v[i] = myPlain(v[i])
		}
		if op.name == "take_call" || op.name == "advance_call" {
			v[0], v[1] = v[1], v[0]
		}
		return op, v, true
	}
	return nil, nil, false
}

// myPlain is a literal of bytes, as they are; other texts stay.
func myPlain(s string) string {
	if b, ok := strings.CutPrefix(s, "x'"); ok && strings.Count(s, "'") == 2 {
		raw, err := hex.DecodeString(strings.TrimSuffix(b, "'"))
		if err != nil {
			panic(err)
		}
		return string(raw)
	}
	return s
}

func myNum(s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func myBool(b bool) int {
	if b {
		return 1
	}
	return 0
}

// myItems splits a list; NULL is an empty one.
func myItems(s string) (all []string) {
	for _, x := range strings.Split(s, ",") {
		if x != "NULL" {
			all = append(all, myPlain(x))
		}
	}
	return all
}

// moment reads a time, in µs.
func moment(s string) int64 {
	t, err := time.Parse("TIMESTAMP'2006-01-02 15:04:05.000000'", s)
	if err != nil {
		panic(err)
	}
	return t.UnixMicro()
}

var (
	eachDue = regexp.MustCompile(`^SELECT ` + myInt + `, .*WHERE t\.name = ` + myBytes + ` AND`)
	dueOf   = regexp.MustCompile(`LIMIT 1\) = ` + myInt + `, 0\)`)
)

// dues is the statement due, of some names.
func dues(c *myCall, v []string) myAnswer {
	a := myAnswer{columns: 3}
	for _, text := range strings.Split(v[0], " UNION ALL ") {
		m, of := eachDue.FindStringSubmatch(text), dueOf.FindStringSubmatch(text)
		micros, first := c.due(myPlain(m[2]), myNum(of[1]))
		a.rows = append(a.rows, []any{m[1], micros, myBool(first)})
	}
	return a
}

// leases returns the tickets of some leases that have not ended. The values from the second on are entries, IDs, tokens and names.
func (c *myCall) leases(v []string) (all []*myTicket) {
	entries, ids, seqs, names := myItems(v[1]), myItems(v[2]), myItems(v[3]), myItems(v[4])
	for _, entry := range entries {
		k := c.tickets[entry]
		if k != nil && k.named && k.held && k.expires > c.now && slices.Contains(ids, k.id) && slices.Contains(names, k.name) &&
			slices.Contains(seqs, strconv.FormatUint(k.seq, 10)) && !slices.Contains(all, k) {
			all = append(all, k)
		}
	}
	return all
}

// renew is the statements renew, of some leases for so long, and shorten.
func (c *myCall) renew(v []string, longer, shorter int64) myAnswer {
	a := myAnswer{}
	for _, k := range c.leases(v) {
		before := *k
		if longer > 0 {
			k.fresh, k.expires = false, max(k.expires, c.now+longer)
		} else {
			k.expires = min(k.expires, c.now+shorter)
		}
		if before != *k {
			a.changed++
		}
	}
	return a
}

// heartbeat is the statements heartbeat and, with a row to insert, register.
func (c *myCall) heartbeat(process, life int64, row *myProcess) myAnswer {
	p := c.processes[process]
	switch {
	case p == nil && row != nil:
		row.heartbeat, row.alive = 1, c.now+life
		c.processes[process] = row
		return myAnswer{changed: 1, key: 1}
	case p == nil || p.alive <= c.now:
		return myAnswer{}
	}
	p.heartbeat, p.alive = p.heartbeat+1, c.now+life
	a := myAnswer{changed: 1, key: uint64(p.heartbeat)} //nolint:gosec // positive
	if row != nil {
		a.changed++ // as ON DUPLICATE KEY UPDATE counts
	}
	return a
}

// depart deletes the rows of processes that live no longer than until then.
func (c *myCall) depart(processes []string, until int64) (a myAnswer) {
	for _, id := range processes {
		if p := c.processes[myNum(id)]; p != nil && p.alive <= until {
			delete(c.processes, myNum(id))
			a.changed++
		}
	}
	return a
}

// listens is the statements listening and, with still, listening_still.
func (c *myCall) listens(process, last int64, v []string, still bool) (a myAnswer) {
	for id, p := range c.processes {
		server, connection := uint64(myNum(v[0])), myNum(v[1]) //nolint:gosec // positive
		if id < process || id > last || still && p.connection == -1 || p.server == server && p.connection == connection {
			continue
		}
		p.server, p.connection = server, connection
		a.changed++
	}
	return a
}

// raise is the statement raise.
func (c *myCall) raise(entry string, start uint64) myAnswer {
	if start != c.d.start {
		return refused(myNull)
	}
	seq := uint64(c.now/1000) << 20 //nolint:gosec // positive
	for _, k := range c.tickets {
		if k.seq == seq {
			return refused(myDuplicate)
		}
	}
	c.tickets[entry] = &myTicket{entry: entry, seq: seq}
	c.next = max(c.next, seq+1)
	return myAnswer{changed: 1, key: seq}
}

// sleep is the statement sleep.
func (d *innodb) sleep(l *myLink, v []string, readOnly bool, canceled <-chan struct{}) myAnswer {
	how := func(n int64) myAnswer { return myAnswer{columns: 1, rows: [][]any{{n}}} }
	d.mu.Lock()
	c := &myCall{myTables: &d.tables, d: d, l: l, now: d.time()}
	first, last, known := myNum(v[0]), myNum(v[1]), myItems(v[2])
	for _, k := range c.sorted() {
		if k.process >= first && k.process <= last && k.fresh && !slices.Contains(known, strconv.FormatUint(k.seq, 10)) && !readOnly {
			d.mu.Unlock()
			return how(2)
		}
	}
	for id, p := range c.processes {
		if id >= first && id <= last && p.connection != myNum(v[3]) && !readOnly {
			d.mu.Unlock()
			return how(3)
		}
	}
	name := lockName(uint64(myNum(v[4])), myNum(v[5])) //nolint:gosec // positive
	d.mu.Unlock()
	if readOnly {
		return how(4)
	}
	return d.getLock(l, name, time.Duration(myNum(v[6]))*time.Second, canceled, how)
}

// getLock is GET_LOCK, which looks each second whether the lock is free that another connection had.
func (d *innodb) getLock(l *myLink, name string, most time.Duration, canceled <-chan struct{}, how func(int64) myAnswer) myAnswer {
	for ends := time.Now().Add(most); ; {
		d.mu.Lock()
		free := d.owner(name) == nil
		if free {
			d.named[name] = l
		}
		d.mu.Unlock()
		left := time.Until(ends)
		switch {
		case free:
			return how(4)
		case left <= 0:
			return how(0)
		}
		timer := time.NewTimer(time.Until(d.s.w.unique(time.Now().Add(min(left, 500*time.Millisecond)))))
		select {
		case <-canceled:
			timer.Stop()
			if d.rnd.one(2) {
				return how(1)
			}
			return refused(myInterrupted)
		case <-timer.C:
		}
	}
}
