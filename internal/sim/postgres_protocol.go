package sim

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// The protocol of PostgreSQL 3.0 (chapter "Frontend/Backend Protocol" of its documentation), at the server.

// SQLSTATE codes.
const (
	codeReplica  = "25006" // read_only_sql_transaction
	codeDeadlock = "40P01"
	codeDisk     = "53100" // disk_full
	codeCrowded  = "53300" // too_many_connections
	codeCanceled = "57014"
	codeStarting = "57P03" // cannot_connect_now
)

// pgError is an error of a statement.
type pgError struct{ code, message string }

func (e *pgError) encode(severity string) []byte {
	return pgEncode(nil, &pgproto3.ErrorResponse{Severity: severity, SeverityUnlocalized: severity, Code: e.code, Message: e.message})
}

func pgEncode(b []byte, all ...pgproto3.BackendMessage) []byte {
	for _, m := range all {
		var err error
		if b, err = m.Encode(b); err != nil {
			panic(err)
		}
	}
	return b
}

func pgNotification(pid int64, channel, text string) []byte {
	return pgEncode(nil, &pgproto3.NotificationResponse{PID: uint32(pid), Channel: channel, Payload: text}) //nolint:gosec // small
}

// pgLink is a connection, at the server.
type pgLink struct {
	d        *database
	c        *conn
	pid      int64
	channels map[string]bool
	status   byte // 'I', or 'T' in a transaction
	bound    *pgBound

	runs runs

	mu       sync.Mutex
	split    bool              // the first packet, which has no kind, has been split off
	prepared map[string]string // SQL, by name
}

// pgBound is a statement with its parameters.
type pgBound struct {
	op      string
	args    []any
	formats []int16 // of the results
}

// dial connects.
func (d *database) dial(ctx context.Context, p *path) (net.Conn, error) {
	l := &pgLink{d: d, status: 'I', channels: make(map[string]bool), prepared: make(map[string]string)}
	c, err := p.dial(ctx, l.serve, l.cut)
	if err != nil {
		return nil, err
	}
	l.c = c.(*conn)
	l.c.name, l.c.sends = l.describe, l.inTime
	return c, nil
}

// inTime checks that no request for a ticket is sent that is too late already. The sender knows the clock by an answer that took a second at
// the most, unless something is wrong.
func (l *pgLink) inTime(request []byte) {
	parsed := ""
	messages(request, func(kind byte, body []byte) {
		switch kind {
		case 'P':
			_, sql := pgText(body)
			parsed, _ = pgText(sql)
		case 'B':
			b := l.bind(body, parsed)
			if b.op != "acquire" {
				return
			}
			until, _ := b.args[9].(int64)
			late := time.Duration(l.d.time()-until) * time.Microsecond
			if until != 0 && late > 1500*time.Millisecond && l.d.s.w.onlySlow() {
				l.d.s.w.fail("%s: %s sends a request for %v whose time was over %v before", l.d.s.name, l.c.p.process, b.args[0], late)
			}
		}
	})
}

// cut cuts off the first request: what is sent until the server has to answer.
func (l *pgLink) cut(sent []byte) (request, rest []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.split {
		if len(sent) < 8 || len(sent) < int(binary.BigEndian.Uint32(sent)) {
			return nil, sent
		}
		l.split = true
		n := int(binary.BigEndian.Uint32(sent))
		return sent[:n:n], sent[n:]
	}
	for n := 0; len(sent) >= n+5; {
		kind := sent[n]
		if n += 1 + int(binary.BigEndian.Uint32(sent[n+1:])); len(sent) < n {
			break
		}
		if strings.IndexByte("SQX", kind) >= 0 { // Sync, Query, Terminate
			return sent[:n:n], sent[n:]
		}
	}
	return nil, sent
}

// messages calls f with each message of a request.
func messages(request []byte, f func(kind byte, body []byte)) {
	for len(request) >= 5 {
		n := 1 + int(binary.BigEndian.Uint32(request[1:]))
		if n > len(request) {
			return
		}
		f(request[0], request[5:n])
		request = request[n:]
	}
}

// pgText reads a string that ends with a zero.
func pgText(body []byte) (s string, rest []byte) {
	head, rest, _ := bytes.Cut(body, []byte{0})
	return string(head), rest
}

// describe says what a request does: the name of a statement, and of a queue. What changes nothing begins with GET.
func (l *pgLink) describe(request []byte) string {
	what := "GET connection"
	if len(request) > 0 && request[0] == 0 {
		return what
	}
	parsed := ""
	messages(request, func(kind byte, body []byte) {
		switch kind {
		case 'P':
			_, sql := pgText(body)
			parsed, _ = pgText(sql)
		case 'Q':
			sql, _ := pgText(body)
			what = "GET " + sql
		case 'B':
			b := l.bind(body, parsed)
			if what = b.op; len(b.args) > 0 {
				what += fmt.Sprint(" ", b.args[0])
			}
			if !pgOps[b.op].writes {
				what = "GET " + what
			}
		}
	})
	return what
}

// bind reads a Bind message; parsed is the unnamed statement.
func (l *pgLink) bind(body []byte, parsed string) *pgBound {
	var m pgproto3.Bind
	if err := m.Decode(body); err != nil {
		panic(err)
	}
	sql := parsed
	if m.PreparedStatement != "" {
		l.mu.Lock()
		sql = l.prepared[m.PreparedStatement]
		l.mu.Unlock()
	}
	b := &pgBound{op: opOf(sql), formats: m.ResultFormatCodes}
	for i, oid := range parameters(sql) {
		b.args = append(b.args, decodeArg(oid, m.Parameters[i]))
	}
	return b
}

// serve answers one request.
func (l *pgLink) serve(request []byte) (answer []byte) {
	if request[0] == 0 {
		return l.start(request)
	}
	parsed, failed := "", false
	messages(request, func(kind byte, body []byte) {
		switch {
		case kind == 'S':
			answer = pgEncode(answer, &pgproto3.ReadyForQuery{TxStatus: l.status})
		case failed: // the rest is skipped
		case kind == 'P':
			name, rest := pgText(body)
			parsed, _ = pgText(rest)
			l.mu.Lock()
			l.prepared[name] = parsed
			l.mu.Unlock()
			answer = pgEncode(answer, &pgproto3.ParseComplete{})
		case kind == 'D':
			answer = append(answer, l.columns(body)...)
		case kind == 'B':
			l.bound = l.bind(body, parsed)
			answer = pgEncode(answer, &pgproto3.BindComplete{})
		case kind == 'E':
			rows, err := l.execute(l.bound.op, l.bound.args)
			if failed = err != nil; failed {
				answer = append(answer, err.encode("ERROR")...)
				return
			}
			answer = encodeRows(answer, rows, l.bound.formats)
		case kind == 'C':
			answer = pgEncode(answer, &pgproto3.CloseComplete{})
		case kind == 'Q':
			sql, _ := pgText(body)
			answer = pgEncode(append(answer, l.simple(sql)...), &pgproto3.ReadyForQuery{TxStatus: l.status})
		case kind == 'X':
			l.c.fail(errReset)
		}
	})
	return answer
}

// start answers the first packet of a connection: the beginning of a session, or the cancellation of another's statement.
func (l *pgLink) start(packet []byte) []byte {
	d := l.d
	if binary.BigEndian.Uint32(packet[4:]) == 80877102 {
		d.cancel(int64(binary.BigEndian.Uint32(packet[8:])))
		l.c.fail(errReset)
		return nil
	}
	if d.s.reads() {
		return (&pgError{codeStarting, "the database system is starting up"}).encode("FATAL")
	}
	if _, _, full := d.s.state(); d.full == codeCrowded && full.After(time.Now()) {
		return (&pgError{codeCrowded, "sorry, too many clients already"}).encode("FATAL")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.pid++
	l.pid = d.pid
	d.links[l.pid] = l
	return pgEncode(nil, &pgproto3.AuthenticationOk{}, &pgproto3.ParameterStatus{Name: "server_version", Value: "15.14"},
		&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"}, &pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"},
		&pgproto3.BackendKeyData{ProcessID: uint32(l.pid), SecretKey: 1}, //nolint:gosec // small
		&pgproto3.ReadyForQuery{TxStatus: 'I'})
}

// cancel ends what a session waits for.
func (d *database) cancel(pid int64) {
	d.mu.Lock()
	l := d.links[pid]
	d.mu.Unlock()
	if l != nil {
		l.runs.cancel()
	}
}

// execute runs a statement, which may be cancelled.
func (l *pgLink) execute(op string, args []any) ([][]any, *pgError) {
	canceled, end := l.runs.begin()
	defer end()
	return l.d.run(op, args, canceled)
}

// runs is what a connection of a database runs. Another connection may cancel it.
type runs struct {
	mu       sync.Mutex
	canceled chan struct{} // closed: what runs is to end; nil: nothing runs
}

// begin begins a statement, which is to end when canceled is closed.
func (r *runs) begin() (canceled <-chan struct{}, end func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := make(chan struct{})
	r.canceled = c
	return c, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.canceled = nil
	}
}

// cancel ends what runs.
func (r *runs) cancel() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.canceled != nil {
		close(r.canceled)
		r.canceled = nil
	}
}

// simple answers what is sent as a text.
func (l *pgLink) simple(sql string) []byte {
	_, _, full := l.d.s.state()
	replica := l.d.full == codeReplica && full.After(time.Now())
	row := func(v any) []byte {
		b := pgEncode(nil, &pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("c"), DataTypeOID: oidOf(v), DataTypeSize: -1, TypeModifier: -1}}})
		return encodeRows(b, [][]any{{v}}, nil)
	}
	verb, rest, _ := strings.Cut(strings.ToLower(sql), " ")
	switch {
	case sql == "-- ping":
		return pgEncode(nil, &pgproto3.EmptyQueryResponse{})
	case strings.Contains(sql, "pg_backend_pid()"):
		return row(l.pid)
	case strings.Contains(sql, "pg_is_in_recovery()"):
		return row(replica)
	case sql == "SHOW server_version":
		return row("15.14")
	case verb == "listen":
		l.d.mu.Lock()
		l.channels[strings.Trim(rest, `"`)] = true
		l.d.mu.Unlock()
	case verb == "begin" && replica:
		return (&pgError{"0A000", "cannot set transaction read-write mode during recovery"}).encode("ERROR")
	case verb == "begin":
		l.status = 'T'
	case verb == "commit", verb == "rollback":
		l.status = 'I'
	default:
		panic("sim: PostgreSQL: " + sql)
	}
	return pgEncode(nil, &pgproto3.CommandComplete{CommandTag: []byte(strings.ToUpper(verb))})
}

// columns answers Describe.
func (l *pgLink) columns(body []byte) (answer []byte) {
	b := l.bound
	if body[0] == 'S' {
		name, _ := pgText(body[1:])
		l.mu.Lock()
		sql := l.prepared[name]
		l.mu.Unlock()
		answer = pgEncode(answer, &pgproto3.ParameterDescription{ParameterOIDs: parameters(sql)})
		b = &pgBound{op: opOf(sql)}
	}
	d := &pgproto3.RowDescription{}
	for i, oid := range pgOps[b.op].columns {
		d.Fields = append(d.Fields, pgproto3.FieldDescription{
			Name: []byte("c"), DataTypeOID: oid, DataTypeSize: -1, TypeModifier: -1, Format: formatOf(b.formats, i),
		})
	}
	if len(d.Fields) == 0 {
		return pgEncode(answer, &pgproto3.NoData{})
	}
	return pgEncode(answer, d)
}
